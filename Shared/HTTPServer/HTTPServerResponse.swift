package import JSON

/// One answer. The server adds `Date`, `Content-Length` and `Connection`.
package struct HTTPServerResponse: Sendable {
    /// What becomes of the answer: the simulator scripts its faults with these.
    package enum Effect: Sendable, Equatable {
        case answer
        /// Never answers; the stream or connection stays as it is.
        case hang
        /// `RST_STREAM` with this code; over HTTP/1.1 the connection is dropped unanswered.
        case reset(code: UInt32)
        /// `GOAWAY` after the answer (its stream is only answered when `lastStreamID` is not below
        /// it; nil names the newest stream). Over HTTP/1.1: answers, then closes.
        case goaway(lastStreamID: Int?, code: UInt32, data: [UInt8])
    }

    package var status: Int
    package var headers: HTTPHeaders
    package var body: [UInt8]
    package var effect: Effect
    /// The body, in place of `body`, when it is made while it is sent.
    package var stream: HTTPBodyStream?

    package init(
        status: Int,
        headers: HTTPHeaders = [:],
        body: [UInt8] = [],
        effect: Effect = .answer
    ) {
        self.status = status
        self.headers = headers
        self.body = body
        self.effect = effect
    }

    package static func json(
        _ value: JSONValue,
        status: Int = 200,
        contentType: String = "application/json"
    ) -> HTTPServerResponse {
        HTTPServerResponse(
            status: status,
            headers: ["Content-Type": contentType],
            body: value.bytes
        )
    }

    package static func text(
        _ text: String,
        status: Int = 200,
        contentType: String = "text/plain; charset=utf-8"
    ) -> HTTPServerResponse {
        HTTPServerResponse(
            status: status,
            headers: ["Content-Type": contentType],
            body: Array(text.utf8)
        )
    }

    package static func empty(_ status: Int) -> HTTPServerResponse {
        HTTPServerResponse(status: status)
    }

    /// RFC 9457 problem details.
    package static func problem(_ problem: HTTPProblem) -> HTTPServerResponse {
        var object: JSONObject = [
            "title": .string(statusText(problem.status)),
            "status": .integer(Int64(problem.status)),
        ]
        if !problem.detail.isEmpty { object["detail"] = .string(problem.detail) }
        var response = json(
            .object(object),
            status: problem.status,
            contentType: "application/problem+json"
        )
        for field in problem.headers { response.headers.add(field.name, field.value) }
        return response
    }
}
