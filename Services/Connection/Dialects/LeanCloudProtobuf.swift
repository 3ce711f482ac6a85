import ConnectionStorage
import Cryptography
import HTTPServer
import JSON
import PushCore

/// LeanCloud's protobuf dialects: one `GenericCommand` a frame, or its base64 in a text frame.
///
/// Only pushes are served. A live query or a conversation is refused by name with the request's serial, which
/// rejects the client's promise and leaves the connection usable.
struct LeanCloudProtobuf: Dialect {
    let name: String
    /// Whether the client parses the answer to a login: its enum of commands has one.
    private let answersLogin: Bool
    private let isBase64: Bool

    var isBinary: Bool { !isBase64 }
    var isLeanClouds: Bool { true }

    init(_ name: String, answersLogin: Bool, isBase64: Bool = false) {
        self.name = name
        self.answersLogin = answersLogin
        self.isBase64 = isBase64
    }

    private enum Command: Int64 {
        case session = 0
        case ack = 3
        case error = 7
        case login = 8
        case data = 9
        case echo = 14
        case loggedIn = 15
        case logOut = 16
        case loggedOut = 17
        case goAway = 21
    }

    /// Fields of `GenericCommand`.
    private enum Field {
        static let command = 1
        static let app = 3
        static let peer = 4
        static let serial = 5
        static let installation = 6
        static let service = 8
        static let login = 100
        static let data = 101
        static let error = 103
        static let ack = 105
    }

    /// The fields of a client's command that are read.
    private struct Incoming {
        var command: Int64?
        var app = ""
        var peer = ""
        var serial: Int64?
        var installation = ""
        var service: Int64 = 0
        var hasSystemInfo = false
        var ackIDs: [String]?

        init(_ bytes: ArraySlice<UInt8>) throws(DialectError) {
            var reader = ProtobufReader(bytes)
            while let (field, value) = try reader.next() {
                switch (field, value) {
                case (Field.command, .number(let number)):
                    command = Int64(bitPattern: number)
                case (Field.app, .bytes(let text)): app = try Self.text(text)
                case (Field.peer, .bytes(let text)): peer = try Self.text(text)
                case (Field.serial, .number(let number)): serial = Int64(bitPattern: number)
                case (Field.installation, .bytes(let text)): installation = try Self.text(text)
                case (Field.service, .number(let number)): service = Int64(bitPattern: number)
                case (Field.login, .bytes): hasSystemInfo = true
                case (Field.ack, .bytes(let ack)): ackIDs = try Self.ids(ack)
                default: break
                }
            }
        }

        /// Returns the `ids` of an `AckCommand`.
        private static func ids(_ bytes: ArraySlice<UInt8>) throws(DialectError) -> [String] {
            var reader = ProtobufReader(bytes)
            var ids: [String] = []
            while let (field, value) = try reader.next() {
                if field == 10, case .bytes(let id) = value { ids.append(try text(id)) }
            }
            return ids
        }

        private static func text(_ bytes: ArraySlice<UInt8>) throws(DialectError) -> String {
            guard let text = String(validating: bytes, as: UTF8.self) else {
                throw DialectError(description: "has a string that is not UTF-8")
            }
            return text
        }
    }

    func request(_ message: WebSocketMessage) throws(DialectError) -> DeviceRequest {
        let bytes: [UInt8]
        switch message {
        case .binary(let content): bytes = content
        case .text(let text):
            // A text is a sign of life of web clients, or base64.
            if text == Array("{}".utf8) { return .ping(answer: text) }
            guard isBase64, let decoded = try? Base64.decode(String(decoding: text, as: UTF8.self))
            else { throw DialectError(description: "is not a binary frame") }
            bytes = decoded
        }
        let incoming = try Incoming(bytes[...])
        guard let number = incoming.command else { return .ignored }
        switch Command(rawValue: number) {
        case .login where incoming.service == 0:
            return .login(
                LoginRequest(
                    app: incoming.app,
                    installationID: incoming.installation,
                    returnsAfterErrors: incoming.hasSystemInfo
                )
            )
        case .login: return .answer(refusal(of: incoming, "live queries"))
        case .ack where incoming.service == 0 && incoming.peer.isEmpty:
            return .acknowledge(incoming.ackIDs.flatMap { $0.isEmpty ? nil : $0 })
        case .ack: return .ignored
        case .echo: return .ping(answer: frame(.echo, serial: incoming.serial))
        case .logOut: return .answer(frame(.loggedOut, serial: incoming.serial))
        case .data, .error, .loggedIn, .loggedOut, .goAway: return .ignored
        case .session, nil: return .answer(refusal(of: incoming, "instant messaging"))
        }
    }

    /// Returns an error with the names of the request, so that the client finds it.
    private func refusal(of incoming: Incoming, _ feature: String) -> [UInt8] {
        frame(.error, serial: incoming.serial) { writer in
            if !incoming.peer.isEmpty { writer.text(Field.peer, incoming.peer) }
            if !incoming.installation.isEmpty {
                writer.text(Field.installation, incoming.installation)
            }
            if incoming.service != 0 { writer.number(Field.service, incoming.service) }
        } content: { writer in
            writer.bytes(
                Field.error,
                Self.error(.appNotAvailable, "\(feature) are not available on this server")
            )
        }
    }

    private static func error(_ code: CloseCode, _ reason: String) -> [UInt8] {
        var error = ProtobufWriter()
        error.number(1, Int64(code.rawValue))
        error.text(2, reason)
        return error.bytes
    }

    /// Writes a command; the fields are in ascending order, as official servers write them.
    private func frame(
        _ command: Command,
        serial: Int64? = nil,
        _ names: (inout ProtobufWriter) -> Void = { _ in },
        content: (inout ProtobufWriter) -> Void = { _ in }
    ) -> [UInt8] {
        var writer = ProtobufWriter()
        writer.number(Field.command, command.rawValue)
        if let serial { writer.number(Field.serial, serial) }
        names(&writer)
        content(&writer)
        return isBase64 ? Array(Base64.encode(writer.bytes).utf8) : writer.bytes
    }

    func ready(waiting: Int, isPushDisabled: Bool) -> [UInt8]? {
        guard answersLogin else { return nil }
        return frame(.loggedIn) {
            $0.number(Field.service, 0)
        } content: { writer in
            guard isPushDisabled else { return }
            var loggedIn = ProtobufWriter()
            loggedIn.number(1, 1)
            writer.bytes(117, loggedIn.bytes)
        }
    }

    func push(_ messages: [WaitingMessage], to device: LoginRequest) -> [UInt8] {
        frame(.data) { writer in
            // The oldest clients take their callback's channel from it.
            writer.text(Field.app, device.app)
            writer.number(Field.service, 0)
        } content: { writer in
            var data = ProtobufWriter()
            for message in messages { data.text(1, message.id) }
            for message in messages {
                var item = ProtobufWriter()
                item.bytes(1, message.leanCloudText)
                data.bytes(2, item.bytes)
            }
            writer.bytes(Field.data, data.bytes)
        }
    }

    func refusal(_ code: CloseCode, _ reason: String) -> [UInt8]? {
        frame(.error, content: { $0.bytes(Field.error, Self.error(code, reason)) })
    }
}

extension WaitingMessage {
    /// The push's data with what LeanCloud's SDKs look for: the channel and the expiry.
    var leanCloudData: JSONObject {
        var data = content.data
        if let channel { data["_channel"] = .string(channel) }
        if hasOwnExpiry { data["_expiration_time"] = .string(expiresAt.iso8601) }
        return data
    }

    var leanCloudText: [UInt8] {
        channel == nil && !hasOwnExpiry ? content.text : leanCloudData.bytes
    }

    /// Whether LeanCloud's SDKs would show a notification that is not to be shown.
    var isSilentForLeanCloud: Bool {
        let silent = content.data["silent"]
        return (silent?.bool ?? (silent?.integer == 1)) && content.data["action"] == nil
    }
}
