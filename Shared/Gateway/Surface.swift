package import HTTPServer

/// One HTTP dialect: its routes, its credentials, and the form of its refusals. The gateway does
/// the rest (limits, authentication, the audit).
package protocol Surface: Sendable {
    /// All routes.
    var routes: [SurfaceRoute] { get }

    /// The requests that web pages of other origins may make; `nil`: none.
    var cors: CORS? { get }

    /// Whether a path belongs to the surface, which then also answers unknown paths below it.
    func owns(_ request: HTTPServerRequest) -> Bool

    /// Reads the credentials. Nothing else of the request is read before they are verified.
    ///
    /// - Throws: `Refusal.unauthorized`, or the surface's own error, if there are no credentials.
    func proof(of request: HTTPServerRequest, _ context: RequestContext) throws -> Proof

    /// Returns the reason not to read the body of a request; `nil` if the body is read. Called once
    /// the head is read.
    func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem?

    /// Renders a refusal in the surface's form.
    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse

    /// Renders an error that only this surface knows; `nil` for any other.
    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse?

    /// Adds to a handler's response what each response of the surface carries.
    func decorated(
        _ response: HTTPServerResponse,
        for request: HTTPServerRequest
    ) -> HTTPServerResponse
}

extension Surface {
    package var cors: CORS? { nil }

    package func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem? { nil }

    package func proof(of request: HTTPServerRequest, _ context: RequestContext) throws -> Proof {
        try Proof(headers: request.headers)
    }

    /// Renders problem details, as Carillon's own routes do.
    package func answer(
        to refusal: Refusal,
        _ request: HTTPServerRequest
    ) -> HTTPServerResponse { .problem(HTTPProblem(refusal)) }

    package func answer(
        toOwn error: any Error,
        _ request: HTTPServerRequest
    ) -> HTTPServerResponse? { nil }

    package func decorated(
        _ response: HTTPServerResponse,
        for request: HTTPServerRequest
    ) -> HTTPServerResponse { response }

    /// Returns the response to an error; `nil` if it must not be shown.
    func errorResponse(_ error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        let refusal = Refusal(error)
        let answer = answer(toOwn: error, request) ?? refusal.map { self.answer(to: $0, request) }
        return answer.map { withCORSHeaders(refusal?.completed($0) ?? $0) }
    }

    func refused(_ refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        withCORSHeaders(refusal.completed(answer(to: refusal, request)))
    }

    /// Adds the CORS headers: web pages must be able to read errors, too.
    func withCORSHeaders(_ response: HTTPServerResponse) -> HTTPServerResponse {
        cors?.withCORSHeaders(response) ?? response
    }
}

extension Refusal {
    /// Adds the headers that HTTP requires for the refusal, whatever the surface's form: which
    /// codings of a body are supported, for example.
    fileprivate func completed(_ response: HTTPServerResponse) -> HTTPServerResponse {
        guard case .problem(let problem) = self else { return response }
        var response = response
        for field in problem.headers where response.headers[field.name] == nil {
            response.headers[field.name] = field.value
        }
        return response
    }
}
