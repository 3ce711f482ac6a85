import ConnectionStorage
import HTTPServer
import JSON

/// LeanCloud's JSON dialects: one object a text frame, `{}` as a sign of life in both directions.
struct LeanCloudJSON: Dialect {
    let name: String

    var isBinary: Bool { false }
    var isLeanClouds: Bool { true }

    init(_ name: String) { self.name = name }

    func request(_ message: WebSocketMessage) throws(DialectError) -> DeviceRequest {
        guard case .text(let text) = message,
            let object = (try? JSONValue.parse(text, maximumDepth: 8, maximumValues: 2000))?.object
        else { throw DialectError(description: "is not a JSON object") }
        if object.isEmpty { return .ping(answer: Array("{}".utf8)) }
        let service = object["service"]?.integer ?? 0
        switch object["cmd"]?.string {
        case "login" where service == 0:
            return .login(
                LoginRequest(
                    app: object["appId"]?.string ?? "",
                    installationID: object["installationId"]?.string ?? ""
                )
            )
        case "login": return .answer(refusal(of: object, "live queries"))
        case "ack":
            let ids = object["ids"]?.array?.compactMap(\.string)
            return .acknowledge(ids.flatMap { $0.isEmpty ? nil : $0 })
        case "echo": return .ping(answer: reply("echo", to: object))
        case "logout": return .answer(reply("loggedout", to: object))
        case "session", "conv", "direct", "logs", "rcp", "read", "unread", "room", "presence",
            "report", "patch", "pubsub", "blacklist":
            return .answer(refusal(of: object, "instant messaging"))
        default: return .ignored
        }
    }

    private func reply(_ command: String, to request: JSONObject) -> [UInt8] {
        var answer: JSONObject = ["cmd": .string(command)]
        if let serial = request["i"] { answer["i"] = serial }
        return answer.bytes
    }

    private func refusal(of request: JSONObject, _ feature: String) -> [UInt8] {
        var answer: JSONObject = ["cmd": "error"]
        for name in ["i", "peerId", "installationId", "service"] {
            if let value = request[name] { answer[name] = value }
        }
        answer["code"] = JSONValue(Int(CloseCode.appNotAvailable.rawValue))
        answer["reason"] = .string("\(feature) are not available on this server")
        return answer.bytes
    }

    func ready(waiting: Int, isPushDisabled: Bool) -> [UInt8]? { nil }

    func push(_ messages: [WaitingMessage], to device: LoginRequest) -> [UInt8] {
        let frame: JSONObject = [
            "cmd": "data", "appId": .string(device.app),
            "installationId": .string(device.installationID),
            "ids": .array(messages.map { .string($0.id) }),
            "msg": .array(messages.map { .object($0.leanCloudData) }),
        ]
        return frame.bytes
    }

    func refusal(_ code: CloseCode, _ reason: String) -> [UInt8]? {
        let frame: JSONObject = [
            "cmd": "error", "code": JSONValue(Int(code.rawValue)), "reason": .string(reason),
        ]
        return frame.bytes
    }
}
