import EventLoop
import Glibc
import Testing

/// Makes the two ends of a TCP connection on the loopback; `nil` if the machine refuses one.
private func connectedPair() -> (ours: Int32, peers: Int32)? {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(listener) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let ours = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    let isConnected = unsafe withUnsafeMutablePointer(to: &address) { pointer in
        unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
            unsafe bind(listener, address, length) == 0 && listen(listener, 1) == 0
                && getsockname(listener, address, &length) == 0
                && connect(ours, address, length) == 0
        }
    }
    guard isConnected else { return nil }
    return (ours, accept(listener, nil, nil))
}

/// Reads two bytes per event, and reports how the connection ended.
private actor SlowReader {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    init(on loop: EventLoop) { self.loop = loop }

    func readUntilTheEnd(_ descriptor: Int32) async -> (bytes: Int, error: Int32) {
        var count = 0
        var isOver = false
        return await withCheckedContinuation { continuation in
            let watch = loop.watch(descriptor) { _ in
                if isOver { return }
                var bytes: [UInt8] = [0, 0]
                let taken = unsafe recv(descriptor, &bytes, 2, Int32(MSG_DONTWAIT))
                if taken > 0 {
                    count += taken
                    return
                }
                isOver = true
                continuation.resume(returning: (count, taken == 0 ? 0 : errno))
            }
            watch.interest = .readable
            // The watch is closed before its descriptor, from outside its callback.
            loop.schedule(after: .milliseconds(500)) { watch.close() }
        }
    }
}

@Suite("Connections that are reset", .timeLimit(.minutes(1)))
struct ResetTests {
    @Test("Bytes from before a reset are read, and then the reset is reported without a wait")
    func dataThenReset() async throws {
        let loop = try EventLoop(name: "reset")
        let pair = try #require(connectedPair())
        let (ours, peers) = (pair.ours, pair.peers)
        var text: [UInt8] = Array("goodbye!".utf8)
        _ = unsafe send(peers, &text, text.count, 0)
        // Unread bytes make the peer's close a reset.
        _ = unsafe send(ours, &text, 1, 0)
        var readable = pollfd(fd: peers, events: Int16(POLLIN), revents: 0)
        unsafe poll(&readable, 1, 1000)
        close(peers)
        let end = await SlowReader(on: loop).readUntilTheEnd(ours)
        #expect(end.bytes == 8)
        #expect(end.error == ECONNRESET)
        await loop.stop()
        close(ours)
    }
}
