import Glibc
import Support

/// A client socket to a port of this machine, with nothing between the test and its bytes. Each
/// call waits on a thread of its own, at most ten seconds.
struct Wire: Sendable {
    private let descriptor: Int32

    /// Connects. A small `receiveBufferBytes` makes a slow reader.
    init(port: Int, receiveBufferBytes: Int32? = nil) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var limit = timeval(tv_sec: 10, tv_usec: 0)
        let limitSize = socklen_t(MemoryLayout<timeval>.size)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            unsafe setsockopt(descriptor, SOL_SOCKET, option, &limit, limitSize)
        }
        if var bytes = receiveBufferBytes {
            let size = socklen_t(MemoryLayout<Int32>.size)
            unsafe setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, size)
        }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(descriptor, $0, size)
            }
        }
        guard status == 0 else {
            Glibc.close(descriptor)
            throw TestFailure("nothing listens on port \(port)")
        }
    }

    func send(_ bytes: [UInt8]) async throws {
        let descriptor = descriptor
        try await onThread {
            var sent = 0
            while sent < bytes.count {
                let count = unsafe bytes[sent...].withUnsafeBytes {
                    unsafe Glibc.send(
                        descriptor,
                        $0.baseAddress,
                        $0.count,
                        Int32(MSG_NOSIGNAL)
                    )
                }
                guard count > 0 else { throw TestFailure("the server took \(sent) bytes") }
                sent += count
            }
        }
    }

    func send(_ text: String) async throws { try await send(Array(text.utf8)) }

    /// Returns some bytes, or no bytes once the server has ended its side.
    func receive() async throws -> [UInt8] {
        let descriptor = descriptor
        return try await onThread {
            var buffer = [UInt8](repeating: 0, count: 64 * 1024)
            let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
            guard count >= 0 else {
                throw errno == EAGAIN
                    ? TestFailure("nothing came within ten seconds")
                    : TestFailure("the connection was reset")
            }
            return Array(buffer[..<count])
        }
    }

    /// Returns all bytes until the server ends its side.
    func receiveAll() async throws -> [UInt8] {
        var all: [UInt8] = []
        while true {
            let part = try await receive()
            if part.isEmpty { return all }
            all += part
        }
    }

    /// Returns all bytes until they end with `text`.
    func receive(until text: String) async throws -> String {
        var all: [UInt8] = []
        while !String(decoding: all, as: UTF8.self).hasSuffix(text) {
            let part = try await receive()
            guard !part.isEmpty else {
                throw TestFailure("ended after: \(String(decoding: all, as: UTF8.self))")
            }
            all += part
        }
        return String(decoding: all, as: UTF8.self)
    }

    func endOutput() { shutdown(descriptor, Int32(SHUT_WR)) }

    func close() { Glibc.close(descriptor) }
}

struct Reply: Equatable {
    let status: Int
    let head: String
    let body: String
}

/// Splits responses that have a `Content-Length` each; those to HEAD have no body.
func replies(_ bytes: [UInt8], hasBodies: Bool = true) throws -> [Reply] {
    var rest = bytes[...]
    var found: [Reply] = []
    while !rest.isEmpty {
        guard let split = rest.firstRange(of: Array("\r\n\r\n".utf8)) else {
            throw TestFailure("half an answer: \(String(decoding: rest, as: UTF8.self))")
        }
        let head = String(decoding: rest[..<split.lowerBound], as: UTF8.self)
        let words = head.split(separator: " ", maxSplits: 2)
        guard words.count == 3, words[0] == "HTTP/1.1", let status = Int(words[1]) else {
            throw TestFailure("no status line: \(head)")
        }
        let length =
            head.split(separator: "\r\n")
            .first { $0.lowercased().hasPrefix("content-length: ") }
            .flatMap { Int($0.dropFirst(16)) } ?? 0
        rest = rest[split.upperBound...]
        let body = hasBodies ? rest.prefix(length) : []
        rest = rest.dropFirst(body.count)
        found.append(
            Reply(status: status, head: head, body: String(decoding: body, as: UTF8.self))
        )
    }
    return found
}
