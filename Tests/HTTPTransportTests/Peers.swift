import EventLoop
import Observability

/// Answers a connection's first request and closes it silently on the second; a request on a later
/// connection is answered. Confined to its loop.
final class DyingPeer: @unchecked Sendable {
    private(set) var requests = 0
    private var connections = 0
    private var streams: [TCPStream] = []

    func listen(on loop: EventLoop) throws -> Int {
        try TCPListener(host: "127.0.0.1", port: 0, on: loop) { [self] stream in
            streams.append(stream)
            connections += 1
            var left = connections == 1 ? 1 : Int.max
            unsafe stream.onRead = { [self, unowned stream] _ in
                requests += 1
                guard left > 0 else { return stream.close() }
                left -= 1
                stream.write(Array("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".utf8))
            }
            stream.startReading()
        }.port
    }
}

/// A proxy that demands credentials which no client has. Confined to its loop.
final class ProxyThatRefuses: @unchecked Sendable {
    private(set) var head = ""
    private var streams: [TCPStream] = []

    func listen(on loop: EventLoop) throws -> Int {
        try TCPListener(host: "127.0.0.1", port: 0, on: loop) { [self] stream in
            streams.append(stream)
            unsafe stream.onRead = { [self, unowned stream] bytes in
                head += unsafe String(decoding: bytes, as: UTF8.self)
                let answer =
                    "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n"
                    + "Connection: close\r\n\r\n"
                stream.write(Array(answer.utf8))
            }
            stream.startReading()
        }.port
    }
}

/// Counts from 0.
final class Tally: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var count = 0

    func next() -> Int {
        lock.withLock {
            defer { unsafe count += 1 }
            return unsafe count
        }
    }
}

/// True only the first time.
final class FirstTime: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var isTaken = false

    func take() -> Bool {
        lock.withLock {
            defer { unsafe isTaken = true }
            return unsafe !isTaken
        }
    }
}
