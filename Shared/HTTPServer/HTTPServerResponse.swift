package import JSON

/// One response. The server adds `Date`, `Content-Length` and `Connection`.
package struct HTTPServerResponse: Sendable {
    package var status: Int
    package var headers: HTTPHeaders
    package var body: [UInt8]
    /// A body that is produced while it is sent, in place of `body`.
    package var stream: HTTPBodyStream?
    /// Runs in place of sending the response; nil sends it. Ignored for a streamed response.
    package var ending: Ending?
    /// Turns the connection into a WebSocket in place of the response.
    var upgrade: WebSocketUpgrade?

    package typealias Ending = @Sendable (any HTTPExchange) -> Void

    package init(
        status: Int,
        headers: HTTPHeaders = [:],
        body: [UInt8] = [],
        ending: Ending? = nil
    ) {
        self.status = status
        self.headers = headers
        self.body = body
        self.ending = ending
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

    /// Renders RFC 9457 problem details.
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

/// The result of a handler that rarely waits: a response, or a closure that produces it.
///
/// A response that is ready needs no task. A task with the frames of all layers between a
/// connection and a handler costs as much as a small response.
package enum ImmediateResponse: Sendable {
    case now(HTTPServerResponse)
    case later(@Sendable () async throws -> HTTPServerResponse)

    /// Returns the response, waiting if necessary.
    package func response() async throws -> HTTPServerResponse {
        switch self {
        case .now(let response): response
        case .later(let rest): try await rest()
        }
    }
}
