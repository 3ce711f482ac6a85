import Cryptography
package import EventLoop
import Foundation
import Observability

@testable import HTTPServer

/// One HTTP/2 frame, written and parsed by hand.
package struct WireFrame: Sendable, Equatable {
    package enum Kind: UInt8, CaseIterable, Sendable {
        case data = 0
        case headers = 1
        case priority = 2
        case reset = 3
        case settings = 4
        case pushPromise = 5
        case ping = 6
        case goaway = 7
        case windowUpdate = 8
        case continuation = 9
    }

    package static let acknowledgement: UInt8 = 1
    package static let endStream: UInt8 = 1
    package static let endHeaders: UInt8 = 4

    package var kind: UInt8
    package var flags: UInt8
    package var stream: Int
    package var payload: [UInt8]

    package init(_ kind: Kind, flags: UInt8 = 0, stream: Int = 0, _ payload: [UInt8] = []) {
        self.init(kind: kind.rawValue, flags: flags, stream: stream, payload)
    }

    package init(kind: UInt8, flags: UInt8 = 0, stream: Int = 0, _ payload: [UInt8]) {
        self.kind = kind
        self.flags = flags
        self.stream = stream
        self.payload = payload
    }

    package func isA(_ kind: Kind) -> Bool { self.kind == kind.rawValue }

    package var bytes: [UInt8] {
        var bytes = Array(bigEndian(payload.count).dropFirst())
        bytes += [kind, flags]
        bytes += bigEndian(stream)
        return bytes + payload
    }

    /// Makes a SETTINGS frame of identifiers and values.
    package static func settings(_ entries: (Int, Int)...) -> WireFrame {
        WireFrame(
            .settings,
            entries.flatMap { bigEndian($0.0).suffix(2) + bigEndian($0.1) }
        )
    }

    /// Makes a head of literals: no Huffman code, no table, names and values of less than 127
    /// bytes.
    package static func head(
        _ stream: Int,
        _ fields: [(String, String)],
        ends: Bool = false,
        isWhole: Bool = true
    ) -> WireFrame {
        WireFrame(
            .headers,
            flags: (ends ? endStream : 0) | (isWhole ? endHeaders : 0),
            stream: stream,
            block(fields)
        )
    }

    package static func block(_ fields: [(String, String)]) -> [UInt8] {
        var bytes: [UInt8] = []
        for (name, value) in fields {
            bytes += [0, UInt8(name.utf8.count)] + Array(name.utf8)
            bytes += [UInt8(value.utf8.count)] + Array(value.utf8)
        }
        return bytes
    }

    /// Makes a complete response without a body.
    package static func answer(_ stream: Int, _ status: Int = 200) -> WireFrame {
        head(stream, [(":status", String(status))], ends: true)
    }

    package static func goaway(_ lastStream: Int, code: Int = 0) -> WireFrame {
        WireFrame(.goaway, bigEndian(lastStream) + bigEndian(code))
    }

    package static func windowUpdate(_ stream: Int, _ bytes: Int) -> WireFrame {
        WireFrame(.windowUpdate, stream: stream, bigEndian(bytes))
    }

    package static func reset(_ stream: Int, code: Int) -> WireFrame {
        WireFrame(.reset, stream: stream, bigEndian(code))
    }

    /// Removes the first complete frame.
    fileprivate static func take(from bytes: inout [UInt8]) -> WireFrame? {
        guard bytes.count >= 9 else { return nil }
        let length = bytes[0..<3].reduce(0) { $0 << 8 | Int($1) }
        guard bytes.count >= 9 + length else { return nil }
        defer { bytes.removeFirst(9 + length) }
        let stream = bytes[5..<9].reduce(0) { $0 << 8 | Int($1) } & 0x7FFF_FFFF
        return WireFrame(
            kind: bytes[3],
            flags: bytes[4],
            stream: stream,
            Array(bytes[9..<9 + length])
        )
    }
}

package func bigEndian(_ number: Int) -> [UInt8] {
    [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) }
}

/// An HTTP/2 server over TLS on a free port that sends, frame by frame, only what its script says:
/// no SETTINGS and no acknowledgement is automatic.
package final class FramePeer: @unchecked Sendable {
    package enum Event {
        /// The client's preface has arrived.
        case opened
        case frame(WireFrame)
        /// All bytes written before have been accepted.
        case written
        case closed
    }

    /// Runs on the peer's loop.
    package typealias Script = (Connection, Event) -> Void

    /// Confined to the peer's loop.
    package final class Connection: @unchecked Sendable {
        /// Counted from 1.
        package let number: Int
        /// For the script.
        package var count = 0
        private let stream: TCPStream
        private let tls: TLSSession
        private let loop: EventLoop
        private var script: Script = { _, _ in }
        private var isToldOfEnd = false
        private var input: [UInt8] = []
        private var prefaceLeft = 24
        private var isOver = false

        fileprivate init(_ stream: TCPStream, _ tls: TLSSession, number: Int, on loop: EventLoop) {
            self.stream = stream
            self.tls = tls
            self.loop = loop
            self.number = number
        }

        package func write(_ frames: WireFrame...) { write(frames.flatMap(\.bytes)) }

        package func write(_ bytes: [UInt8]) {
            guard !isOver else { return }
            tls.send(bytes)
            pass()
            guard !isToldOfEnd else { return }
            isToldOfEnd = true
            loop.execute { [self] in
                isToldOfEnd = false
                tellWhenWritten()
            }
        }

        private func tellWhenWritten() {
            if !isOver, stream.pendingBytes == 0 { script(self, .written) }
        }

        package func close() {
            isOver = true
            stream.close()
        }

        private func pass() {
            while let sealed = tls.drain() { stream.write(sealed) }
        }

        fileprivate func start(_ script: @escaping Script) {
            self.script = script
            unsafe stream.onRead = { [self] bytes in
                guard case .success(let plain) = unsafe tls.receive(bytes) else { return close() }
                pass()
                let skipped = min(prefaceLeft, plain.count)
                input += plain.dropFirst(skipped)
                if prefaceLeft > 0 {
                    prefaceLeft -= skipped
                    if prefaceLeft == 0, skipped > 0 { script(self, .opened) }
                }
                while !isOver, let frame = WireFrame.take(from: &input) {
                    script(self, .frame(frame))
                }
            }
            stream.onWritten = { [self] in tellWhenWritten() }
            stream.onEnd = { [self] _ in
                close()
                script(self, .closed)
            }
            stream.startReading()
        }
    }

    package let port: Int
    /// PEM, for clients that should trust it; removed by `stop`.
    package let caFile: String
    package var origin: String { "https://localhost:\(port)" }
    private let loop: EventLoop
    private let state: State

    /// Confined to the loop, except for the count.
    private final class State: @unchecked Sendable {
        let lock = Lock()
        private var made = 0
        var open: [Connection] = []

        var connections: Int { lock.withLock { made } }

        func next() -> Int {
            lock.withLock {
                made += 1
                return made
            }
        }
    }

    /// The number of connections accepted so far.
    package var connections: Int { state.connections }

    private init(port: Int, caFile: String, loop: EventLoop, state: State) {
        self.port = port
        self.caFile = caFile
        self.loop = loop
        self.state = state
    }

    /// Runs `body` with a peer and a loop for the client, and stops both afterwards.
    package static func run(
        _ script: @escaping @Sendable (Connection, Event) -> Void,
        _ body: (FramePeer, EventLoop) async throws -> Void
    ) async throws {
        let authority = try CertificateAuthority.make(commonName: "frame peer")
        let issued = try authority.issue()
        let caFile =
            FileManager.default.temporaryDirectory.path
            + "/" + TestEnvironment.unique("ca-") + ".pem"
        try authority.certificatePEM.write(toFile: caFile, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(atPath: caFile) }
        let context = try TLSContext(
            certificatePEM: issued.certificatePEM,
            privateKeyPEM: issued.privateKeyPEM,
            protocols: [.http2],
            requestsClientCertificate: false
        )
        let (loop, client) = (try EventLoop(name: "frame-peer"), try EventLoop(name: "client"))
        let state = State()
        let port = try await loop.onLoop {
            try TCPListener(host: "127.0.0.1", port: 0, on: loop) { stream in
                guard let tls = TLSSession(context) else { return stream.close() }
                let connection = Connection(stream, tls, number: state.next(), on: loop)
                state.open.append(connection)
                connection.start(script)
            }.port
        }
        let peer = FramePeer(port: port, caFile: caFile, loop: loop, state: state)
        let result: Result<Void, any Error>
        do {
            try await body(peer, client)
            result = .success(())
        } catch {
            result = .failure(error)
        }
        await client.stop()
        try await loop.onLoop {
            for connection in state.open { connection.close() }
            state.open = []
        }
        await loop.stop()
        try result.get()
    }

    /// Runs `body` on the peer's loop, for each connection so far.
    package func onEach(_ body: @escaping @Sendable (Connection) -> Void) async throws {
        try await loop.onLoop { [state] in for connection in state.open { body(connection) } }
    }
}
