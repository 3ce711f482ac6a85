package import HTTPServer

/// One protocol's face towards its callers: its routes, who it takes them for, and how it tells them
/// that they are refused. What every request passes (limits, proof, the audit) is the door's.
package protocol Surface: Sendable {
    /// All that can be asked.
    var routes: [SurfaceRoute] { get }

    /// What web pages of other origins may ask; `nil`: nothing.
    var cors: CORS? { get }

    /// Whether a path is the surface's, so that what is not there is refused in its form.
    func owns(_ request: HTTPServerRequest) -> Bool

    /// Who says that he calls. Nothing else of the request is read before that is proved.
    ///
    /// - Throws: `Refusal.unauthorized`, or the surface's own error, where nobody does.
    func proof(of request: HTTPServerRequest, _ visit: Visit) throws -> Proof

    /// Why the body of a request is not to be read; `nil`: it is. Asked when its head is there.
    func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem?

    /// A refusal in the surface's form.
    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse

    /// An error that only this surface can tell of; `nil` for any other.
    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse?

    /// What a handler answered, with what each answer of the surface carries.
    func dressed(
        _ response: HTTPServerResponse,
        for request: HTTPServerRequest
    ) -> HTTPServerResponse
}

extension Surface {
    package var cors: CORS? { nil }

    package func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem? { nil }

    package func proof(of request: HTTPServerRequest, _ visit: Visit) throws -> Proof {
        try Proof(headers: request.headers)
    }

    /// Problem details, as Carillon's own routes have them.
    package func answer(
        to refusal: Refusal,
        _ request: HTTPServerRequest
    ) -> HTTPServerResponse { .problem(HTTPProblem(refusal)) }

    package func answer(
        toOwn error: any Error,
        _ request: HTTPServerRequest
    ) -> HTTPServerResponse? { nil }

    package func dressed(
        _ response: HTTPServerResponse,
        for request: HTTPServerRequest
    ) -> HTTPServerResponse { response }

    /// What a caller is told of an error; `nil` for what is none of his business.
    func told(_ error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        let refusal = Refusal(error)
        let answer = answer(toOwn: error, request) ?? refusal.map { self.answer(to: $0, request) }
        return answer.map { opened(refusal?.completed($0) ?? $0) }
    }

    func refused(_ refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        opened(refusal.completed(answer(to: refusal, request)))
    }

    /// Web pages must be able to read errors too.
    func opened(_ response: HTTPServerResponse) -> HTTPServerResponse {
        cors?.opened(response) ?? response
    }
}

extension Refusal {
    /// An answer that tells of it, with the headers that are part of it in HTTP, whatever the surface's
    /// form: which codings of a body are taken, say.
    fileprivate func completed(_ response: HTTPServerResponse) -> HTTPServerResponse {
        guard case .problem(let problem) = self else { return response }
        var response = response
        for field in problem.headers where response.headers[field.name] == nil {
            response.headers[field.name] = field.value
        }
        return response
    }
}
