internal import COpenSSL
internal import FoundationEssentials

/// A client's request for a WebSocket (RFC 6455 section 4.2).
package struct WebSocketHandshake: Sendable {
    /// The subprotocols that the client offers, the preferred first.
    package let subprotocols: [String]
    private let key: String

    /// Whether a request asks for a WebSocket at all.
    package static func isAsked(by request: HTTPServerRequest) -> Bool {
        request.headers.hasToken("websocket", in: "upgrade")
    }

    /// - Throws: 426 for a request that does not ask for a WebSocket, or for another version; 400
    ///   for an invalid key.
    package init(_ request: HTTPServerRequest) throws(HTTPProblem) {
        guard request.method == .get, request.protocolVersion == .http11,
            Self.isAsked(by: request), request.headers.hasToken("upgrade", in: "connection")
        else {
            throw HTTPProblem(
                status: 426,
                detail: "this path is a WebSocket's",
                headers: ["Upgrade": "websocket"]
            )
        }
        guard request.header("sec-websocket-version") == "13" else {
            throw HTTPProblem(
                status: 426,
                detail: "Sec-WebSocket-Version must be 13",
                headers: ["Upgrade": "websocket", "Sec-WebSocket-Version": "13"]
            )
        }
        let keys = request.headers.all("sec-websocket-key")
        guard keys.count == 1, let key = keys.first, key.utf8.count == 24,
            Data(base64Encoded: key)?.count == 16
        else {
            throw HTTPProblem(status: 400, detail: "Sec-WebSocket-Key must be 16 bytes in base64")
        }
        self.key = key
        subprotocols = request.headers.all("sec-websocket-protocol").flatMap { line in
            line.split(separator: ",").map { $0.filter { $0 != " " && $0 != "\t" } }
        }
    }

    /// The value of `Sec-WebSocket-Accept`, the proof that the server understood the request.
    var accept: String {
        let text = Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8)
        var digest = [UInt8](repeating: 0, count: 20)
        unsafe text.withUnsafeBufferPointer { bytes in
            _ = unsafe SHA1(bytes.baseAddress, bytes.count, &digest)
        }
        return Data(digest).base64EncodedString()
    }
}

/// The response that turns a connection into a WebSocket.
package struct WebSocketUpgrade: Sendable {
    let handshake: WebSocketHandshake
    let subprotocol: String?
    let limits: WebSocketLimits
    let handler: any WebSocketHandler
}

extension HTTPServerResponse {
    /// Accepts a WebSocket.
    ///
    /// - Parameters:
    ///   - handshake: The request.
    ///   - subprotocol: One of the subprotocols that the client offers; `nil`: no subprotocol.
    ///   - limits: The socket's limits.
    ///   - handler: Gets the socket and its messages, on the connection's loop.
    /// - Returns: A response without a body.
    package static func upgrade(
        _ handshake: WebSocketHandshake,
        subprotocol: String?,
        limits: WebSocketLimits = WebSocketLimits(),
        to handler: any WebSocketHandler
    ) -> HTTPServerResponse {
        var response = HTTPServerResponse(status: 426, headers: ["Upgrade": "websocket"])
        response.upgrade = WebSocketUpgrade(
            handshake: handshake,
            subprotocol: subprotocol,
            limits: limits,
            handler: handler
        )
        return response
    }
}

/// The limits of one socket.
package struct WebSocketLimits: Sendable {
    /// The largest message of the client.
    package var messageBytes = 8 << 10
    /// The most bytes that wait for the client; beyond it the socket is dropped.
    package var queuedBytes = 256 << 10
    /// How long a client may be silent.
    package var idle = Duration.seconds(400)
    /// How long a message may arrive, beside a second for each 8 KiB of it.
    package var messageTime = Duration.seconds(60)
    /// How long a client may take to answer a close.
    package var closing = Duration.seconds(5)
    /// Whether every end is the end of TCP alone, also after a violation of the protocol and at the
    /// server's stop, for clients that a close code may harm. No close frame is ever sent then.
    package var endsWithoutClose = false
    /// Asks for the memory of a message that is arriving; it is called on the loop with the bytes of the
    /// message so far, if they are many, and with 0 once the handler has it. False: there is none,
    /// and the socket ends.
    package var hold: (@Sendable (Int) -> Bool)?

    package init() {}
}
