import ConnectionStorage
import PushCore
import Testing

@testable import Connection

/// The decisions of the hub and of its connections.
@Suite("Messages of one connection")
struct HubTests {
    private final class Client: DeviceTransport {
        var remoteAddress: String { "127.0.0.1" }
        var hasRoom = true
        var frames = 0

        func send(_ frame: [UInt8]) { frames += 1 }
        func close(_ code: UInt16, _ reason: String) {}
        func fail() {}
        func abort() {}
    }

    private static let key = DeviceKey(app: "shop", installationID: "an-installation-1")

    private func messages(_ count: Int, bytes: Int) -> [WaitingMessage] {
        (1...count).map { number in
            WaitingMessage(
                device: Self.key,
                id: "m\(number)",
                sequence: number,
                target: "object",
                storedAt: Instant(seconds: 0),
                expiresAt: Instant(seconds: 1000),
                content: MessageContent(
                    identity: number,
                    app: "shop",
                    pushID: "p\(number)",
                    eventID: "e",
                    text: Array("{\"a\":\"\(String(repeating: "x", count: bytes))\"}".utf8)
                )
            )
        }
    }

    private func connected(_ client: Client) -> DeviceSocket {
        let socket = DeviceSocket(client, NativeDialect())
        socket.bind(LoginRequest(app: "shop", installationID: "an-installation-1", appKey: "k"))
        return socket
    }

    @Test("A client that acknowledges nothing gets a window of messages, by number and by bytes")
    func window() {
        let client = Client()
        let socket = connected(client)
        var sent = 0
        socket.send(messages(60, bytes: 10), isAll: true, look: 1) { sent += $0.count }
        #expect(sent == DeviceSocket.window && socket.hasMore && !socket.canSend)
        let large = connected(client)
        sent = 0
        large.send(messages(9, bytes: 20 << 10), isAll: true, look: 1) { sent += $0.count }
        #expect(sent == 4 && large.hasMore && !large.canSend)
        large.settle("m1", look: 1)
        #expect(large.canSend)
        client.hasRoom = false
        #expect(!large.canSend)
    }

    @Test("A message is acknowledged once and opened once, however often its client says so")
    func once() {
        let client = Client()
        let socket = connected(client)
        socket.send(messages(3, bytes: 10), isAll: true, look: 1) { _ in }
        #expect(socket.acknowledged(["m1", "m1", "unknown"]).map(\.id) == ["m1"])
        #expect(socket.acknowledged(["m1"]).isEmpty)
        #expect(Set(socket.acknowledged(nil).map(\.id)) == ["m2", "m3"])
        #expect(socket.opened(["m1", "m1", "unknown"]).map(\.id) == ["m1"])
        #expect(socket.opened(["m1"]).isEmpty)
    }
}
