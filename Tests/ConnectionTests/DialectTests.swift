import ConnectionStorage
import Cryptography
import Foundation
import HTTPServer
import JSON
import PushCore
import Testing

@testable import Connection

private func hex(_ text: String) -> [UInt8] {
    let digits = text.filter(\.isHexDigit)
    return stride(from: 0, to: digits.count, by: 2).map { index in
        let start = digits.index(digits.startIndex, offsetBy: index)
        return UInt8(digits[start..<digits.index(start, offsetBy: 2)], radix: 16) ?? 0
    }
}

private let app = "CarillonAppId000000000-gzGzoHsz"
private let installation = "232cfb795cbe7add44d0f5d8a9fd91bd"

private func message(
    _ id: String,
    _ data: JSONObject = ["alert": "hi"],
    channel: String? = nil,
    expiresAt: Instant? = nil
) -> WaitingMessage {
    WaitingMessage(
        device: DeviceKey(app: app, installationID: installation),
        id: id,
        sequence: 1,
        target: "0123456789abcdef01234567",
        storedAt: Instant(milliseconds: 1_764_000_000_000),
        expiresAt: expiresAt ?? Instant(milliseconds: 1_765_000_000_000),
        hasOwnExpiry: expiresAt != nil,
        channel: channel,
        content: MessageContent(
            identity: 1,
            app: app,
            pushID: "00000000-0000-8000-8000-000000000001",
            eventID: "event",
            text: data.bytes
        )
    )
}

private let device = LoginRequest(app: app, installationID: installation)

@Suite("LeanCloud's protobuf frames, byte by byte")
struct LeanCloudProtobufTests {
    private let dialect = LeanCloudProtobuf("lc.protobuf2.3", answersLogin: true)

    private func login(_ more: String = "") -> [UInt8] {
        hex("08 08 1a 1f") + Array(app.utf8) + hex("32 20") + Array(installation.utf8) + hex(more)
    }

    @Test("A login of the official client is read, and its answer is the one that it expects")
    func logsIn() throws {
        #expect(try dialect.request(.binary(login())) == .login(device))
        #expect(dialect.ready(waiting: 3, isPushDisabled: false) == hex("08 0f 40 00"))
        #expect(
            dialect.ready(waiting: 0, isPushDisabled: true) == hex("08 0f 40 00 aa 07 02 08 01")
        )
    }

    @Test("System information in a login marks a client that comes back only after an error")
    func returnsAfterErrors() throws {
        var expected = device
        expected.returnsAfterErrors = true
        #expect(try dialect.request(.binary(login("a2 06 02 0a 00"))) == .login(expected))
    }

    @Test("An acknowledgement of the official client names the messages of its frame")
    func acknowledges() throws {
        let ack =
            hex("08 03 32 20") + Array(installation.utf8) + hex("ca 06 08 52 02 6131 52 02 6132")
        #expect(try dialect.request(.binary(ack)) == .acknowledge(["a1", "a2"]))
        let bare = hex("08 03 32 20") + Array(installation.utf8)
        #expect(try dialect.request(.binary(bare)) == .acknowledge(nil))
    }

    @Test("A push is one data command with parallel lists of ids and texts")
    func pushes() throws {
        let text = Array("{\"alert\":\"hi\"}".utf8)
        let frame = dialect.push([message("a1")], to: device)
        let item = hex("0a") + [UInt8(text.count)] + text
        let data = hex("0a 02 6131 12") + [UInt8(item.count)] + item
        #expect(
            frame == hex("08 09 1a 1f") + Array(app.utf8) + hex("40 00 aa 06") + [UInt8(data.count)]
                + data
        )
    }

    @Test("Channel and expiry are in the text, as the SDK reads them from there")
    func extras() throws {
        let expiry = Instant(milliseconds: 1_764_000_060_000)
        let sent = message("a1", channel: "news", expiresAt: expiry)
        let data = sent.leanCloudData
        #expect(data["_channel"] == "news")
        #expect(data["_expiration_time"] == .string(expiry.iso8601))
        #expect(expiry.iso8601.hasSuffix("Z") && expiry.iso8601.count == 24)
    }

    @Test("A live query and a conversation are refused by name, with the request's serial")
    func refusals() throws {
        let liveQuery =
            hex("08 08 1a 1f") + Array(app.utf8) + hex("28 01 32 08") + Array("lq-sub-1".utf8)
            + hex("40 01")
        guard case .answer(let frame) = try dialect.request(.binary(liveQuery)) else {
            Issue.record("a live query is not answered")
            return
        }
        #expect(
            frame.starts(with: hex("08 07 28 01 32 08") + Array("lq-sub-1".utf8) + hex("40 01"))
        )
        #expect(String(decoding: frame, as: UTF8.self).contains("live queries are not available"))
        // session, open, with a serial and a peer.
        let session = hex("08 00 10 01 22 03") + Array("tom".utf8) + hex("28 07")
        guard case .answer(let other) = try dialect.request(.binary(session)) else {
            Issue.record("a session is not answered")
            return
        }
        #expect(other.starts(with: hex("08 07 28 07 22 03") + Array("tom".utf8)))
    }

    @Test("An echo has the request's serial in its answer")
    func echoes() throws {
        #expect(
            try dialect.request(.binary(hex("08 0e 28 05"))) == .ping(answer: hex("08 0e 28 05"))
        )
    }

    @Test(
        "Bytes that are not a command are an error, whatever length they announce",
        arguments: ["ff", "08", "0a ff ff ff ff 7f", "0b", "1a 05 61", "1a 01 ff 08 08", "00 00"]
    )
    func malformed(text: String) {
        #expect(throws: DialectError.self) { try dialect.request(.binary(hex(text))) }
    }

    @Test("The text form is the base64 of the same bytes")
    func base64() throws {
        let text = LeanCloudProtobuf("lc.proto2base64.3", answersLogin: true, isBase64: true)
        let bytes = Array(Base64.encode(login()).utf8)
        #expect(try text.request(.text(bytes)) == .login(device))
        #expect(text.ready(waiting: 0, isPushDisabled: false) == Array("CA9AAA==".utf8))
        #expect(try dialect.request(.text(Array("{}".utf8))) == .ping(answer: Array("{}".utf8)))
    }

    @Test("Clients whose enum has no answer to a login get none")
    func oldClients() {
        let old = LeanCloudProtobuf("lc.protobuf.1", answersLogin: false)
        #expect(old.ready(waiting: 1, isPushDisabled: false) == nil)
    }
}

@Suite("JSON frames")
struct JSONDialectTests {
    private let dialect = LeanCloudJSON("lc.json.3")

    private func request(_ text: String, _ dialect: any Dialect) throws -> DeviceRequest {
        try dialect.request(.text(Array(text.utf8)))
    }

    @Test("A web client logs in, acknowledges and shows signs of life")
    func webClient() throws {
        let login =
            "{\"cmd\":\"login\",\"appId\":\"\(app)\",\"installationId\":\"\(installation)\"}"
        #expect(try request(login, dialect) == .login(device))
        #expect(try request("{}", dialect) == .ping(answer: Array("{}".utf8)))
        #expect(
            try request("{\"cmd\":\"ack\",\"ids\":[\"w1\",\"w2\"]}", dialect)
                == .acknowledge(["w1", "w2"])
        )
        #expect(try request("{\"cmd\":\"ack\"}", dialect) == .acknowledge(nil))
        #expect(dialect.ready(waiting: 0, isPushDisabled: false) == nil)
    }

    @Test("A push has the app, and its messages as objects")
    func pushes() throws {
        let frame = try JSONValue.parse(dialect.push([message("w1")], to: device))
        #expect(frame["cmd"] == "data" && frame["appId"] == .string(app))
        #expect(frame["ids"] == ["w1"])
        #expect(frame["msg"] == [["alert": "hi"]])
    }

    @Test("Our own dialect says hello, gets pushes, acknowledges and reports opens")
    func native() throws {
        let native = NativeDialect()
        let hello = """
            {"type":"hello","app":"a","key":"k","installation":"i","secret":"s"}
            """
        var expected = LoginRequest(app: "a", installationID: "i", appKey: "k", secret: "s")
        #expect(try request(hello, native) == .login(expected))
        expected.secret = nil
        #expect(try request("{\"type\":\"ack\",\"ids\":[\"x\"]}", native) == .acknowledge(["x"]))
        #expect(try request("{\"type\":\"opened\",\"ids\":[\"x\"]}", native) == .opened(["x"]))
        let pong = Array("{\"type\":\"pong\"}".utf8)
        #expect(try request("{\"type\":\"ping\"}", native) == .ping(answer: pong))
        let frame = try JSONValue.parse(native.push([message("m1")], to: device))
        #expect(frame["type"] == "push" && frame["id"] == "m1" && frame["data"] == ["alert": "hi"])
        #expect(frame["expiresAt"] == nil)
        for text in ["[]", "{\"type\":\"hello\"}", "{\"type\":\"ack\"}", "{\"type\":\"x\"}", "{"] {
            #expect(throws: DialectError.self) { try request(text, native) }
        }
    }

    @Test("A silent push without an action is nothing for LeanCloud's SDKs, which would show it")
    func silent() {
        #expect(message("a", ["silent": true, "k": 1]).isSilentForLeanCloud)
        #expect(!message("a", ["silent": true, "action": "com.x"]).isSilentForLeanCloud)
        #expect(!message("a", ["alert": "x"]).isSilentForLeanCloud)
    }
}

@Suite("The choice of a dialect")
struct DialectChoiceTests {
    @Test("The first known offer is chosen and echoed; none means JSON, only unknown ones nothing")
    func choice() {
        let offered = Dialects.choose(["x", "lc.protobuf2.3", "lc.json.3"], query: nil)
        #expect(offered?.dialect.name == "lc.protobuf2.3")
        #expect(offered?.subprotocol == "lc.protobuf2.3")
        let unnamed = Dialects.choose([], query: nil)
        #expect(unnamed?.dialect.name == "lc.json.1" && unnamed?.subprotocol == nil)
        let query = Dialects.choose([], query: "lc.proto2base64.3")
        #expect(query?.dialect.name == "lc.proto2base64.3" && query?.subprotocol == nil)
        #expect(Dialects.choose(["x"], query: nil) == nil)
        #expect(Dialects.choose([], query: "x") == nil)
    }
}
