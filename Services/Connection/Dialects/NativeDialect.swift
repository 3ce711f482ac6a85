import ConnectionStorage
import HTTPServer
import JSON
import PushCore

/// Carillon's own dialect: JSON in text frames, each with its `type`.
struct NativeDialect: Dialect {
    static let subprotocol = "carillon.push.v1"

    var name: String { Self.subprotocol }
    var isBinary: Bool { false }
    var isLeanClouds: Bool { false }
    var maximumBatch: Int { 1 }

    /// How often a client is to send a `ping`, well within the idle limit.
    static let pingSeconds = 120
    /// More than a window, and than a message can name of ours.
    private static let maximumIDs = 250

    func request(_ message: WebSocketMessage) throws(DialectError) -> DeviceRequest {
        guard case .text(let text) = message,
            let object = (try? JSONValue.parse(text, maximumDepth: 8, maximumValues: 2000))?.object
        else { throw DialectError(description: "is not a JSON object in a text frame") }
        switch object["type"]?.string {
        case "hello":
            guard let app = object["app"]?.string, let key = object["key"]?.string,
                let installation = object["installation"]?.string
            else { throw DialectError(description: "hello needs app, key and installation") }
            return .login(
                LoginRequest(
                    app: app,
                    installationID: installation,
                    appKey: key,
                    secret: object["secret"]?.string
                )
            )
        case "ack": return .acknowledge(try Self.ids(object))
        case "opened": return .opened(try Self.ids(object))
        case "ping": return .ping(answer: Self.frame(["type": "pong"]))
        case "pong": return .ping(answer: nil)
        default: throw DialectError(description: "type must be hello, ack, opened or ping")
        }
    }

    private static func ids(_ object: JSONObject) throws(DialectError) -> [String] {
        guard let list = object["ids"]?.array else {
            throw DialectError(description: "ids must be an array of strings")
        }
        guard list.count <= maximumIDs else {
            throw DialectError(description: "ids must be at most \(maximumIDs)")
        }
        return list.compactMap(\.string)
    }

    private static func frame(_ object: JSONObject) -> [UInt8] { object.bytes }

    func ready(waiting: Int, isPushDisabled: Bool) -> [UInt8]? {
        Self.frame([
            "type": "ready", "waiting": JSONValue(waiting),
            "pingSeconds": JSONValue(Self.pingSeconds),
        ])
    }

    func push(_ messages: [WaitingMessage], to device: LoginRequest) -> [UInt8] {
        guard let message = messages.first else { return [] }
        var frame = message.nativeObject
        frame["type"] = "push"
        return frame.bytes
    }

    func refusal(_ code: CloseCode, _ reason: String) -> [UInt8]? {
        // A client that was too fast, or came during a drain, may come back.
        let mayRetry = [.goingAway, .tooFast, .loginTimeout].contains(code)
        return Self.frame([
            "type": "refused", "error": .string(reason), "retry": .bool(mayRetry),
        ])
    }

    func goAway(reconnectAfterMilliseconds: Int) -> [UInt8]? {
        Self.frame([
            "type": "goaway", "reconnectAfterMs": JSONValue(reconnectAfterMilliseconds),
        ])
    }
}

extension WaitingMessage {
    /// The message as our own protocols write it.
    var nativeObject: JSONObject {
        var object: JSONObject = [
            "id": .string(id), "pushId": .string(pushID), "sentAt": .string(storedAt.iso8601),
        ]
        if hasOwnExpiry { object["expiresAt"] = .string(expiresAt.iso8601) }
        object["data"] = .object(content.data)
        return object
    }
}
