import Foundation
package import JSON
import Synchronization

/// The response of a server.
package struct HTTPAnswer: Sendable {
    package let status: Int
    /// Names in lower case.
    package let headers: [(name: String, value: String)]
    package let body: [UInt8]

    package init(status: Int, headers: [(name: String, value: String)], body: [UInt8]) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    package var text: String { String(decoding: body, as: UTF8.self) }
    package var json: JSONValue? { try? JSONValue.parse(body) }

    package func header(_ name: String) -> String? {
        headers.first { $0.name == name.lowercased() }?.value
    }
}

/// Makes one HTTP/1.1 call over a connection of its own, to a plain listener of this machine.
///
/// It does not use HTTPTransport, so that a bug that client and server share is found.
package func http(
    _ method: String,
    _ url: String,
    headers: [String: String] = [:],
    body: JSONValue? = nil
) async throws -> HTTPAnswer {
    try await http(
        method,
        url,
        headers: headers.merging(body == nil ? [:] : ["Content-Type": "application/json"]) {
            mine,
            _ in mine
        },
        bytes: body?.bytes ?? []
    )
}

package func http(
    _ method: String,
    _ url: String,
    headers: [String: String],
    bytes: [UInt8]
) async throws -> HTTPAnswer {
    guard let parts = URLComponents(string: url), let port = parts.port else {
        throw TestFailure("not a URL with a port: \(url)")
    }
    var target = parts.percentEncodedPath.isEmpty ? "/" : parts.percentEncodedPath
    if let query = parts.percentEncodedQuery { target += "?\(query)" }
    var head = "\(method) \(target) HTTP/1.1\r\nHost: \(parts.host ?? ""):\(port)\r\n"
    head += "Connection: close\r\n"
    for (name, value) in headers { head += "\(name): \(value)\r\n" }
    if !bytes.isEmpty || ["POST", "PUT"].contains(method) {
        head += "Content-Length: \(bytes.count)\r\n"
    }
    let request = Array(head.utf8) + Array("\r\n".utf8) + bytes
    let answer = try await onThread {
        let socket = try LoopbackSocket(port: UInt16(port))
        defer { socket.close() }
        try socket.send(request)
        return try socket.receiveAll()
    }
    return try parse(answer, of: "\(method) \(url)")
}

/// Parses a response that ended with its connection.
package func parse(_ answer: [UInt8], of call: String) throws -> HTTPAnswer {
    let end = Array("\r\n\r\n".utf8)
    guard let split = answer.firstRange(of: end) else {
        throw TestFailure("\(call): no whole answer, \(answer.count) bytes")
    }
    var lines = String(decoding: answer[..<split.lowerBound], as: UTF8.self)
        .split(separator: "\r\n").map(String.init)
    let words = lines.removeFirst().split(separator: " ")
    guard words.count >= 2, let status = Int(words[1]) else {
        throw TestFailure("\(call): no status")
    }
    let headers: [(name: String, value: String)] = lines.map { line in
        let colon = line.firstIndex(of: ":") ?? line.endIndex
        let value = line[colon...].dropFirst().drop { $0 == " " }
        return (line[..<colon].lowercased(), String(value))
    }
    var body = Array(answer[split.upperBound...])
    if headers.contains(where: { $0.name == "transfer-encoding" && $0.value == "chunked" }) {
        body = try joinChunks(body[...], of: call)
    } else if let length = headers.first(where: { $0.name == "content-length" })?.value,
        Int(length) != body.count, !call.hasPrefix("HEAD")
    {
        throw TestFailure("\(call): \(body.count) bytes of \(length)")
    }
    return HTTPAnswer(status: status, headers: headers, body: body)
}

private func joinChunks(_ bytes: ArraySlice<UInt8>, of call: String) throws -> [UInt8] {
    var rest = bytes
    var body: [UInt8] = []
    while let line = rest.firstRange(of: [13, 10]) {
        let text = String(decoding: rest[rest.startIndex..<line.lowerBound], as: UTF8.self)
        guard let size = Int(text, radix: 16),
            rest.distance(from: line.upperBound, to: rest.endIndex) >= size
        else { break }
        if size == 0 { return body }
        body += rest[line.upperBound..<(line.upperBound + size)]
        rest = rest[(line.upperBound + size)...].dropFirst(2)
    }
    throw TestFailure("\(call): broken chunks")
}

/// A blocking connection to a port of this machine.
package struct LoopbackSocket {
    private let descriptor: Int32

    package init(port: UInt16) throws {
        // Child processes do not inherit it: some of them have few descriptors.
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        descriptor = socket(AF_INET, type, 0)
        var limit = timeval(tv_sec: 30, tv_usec: 0)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            unsafe setsockopt(
                descriptor,
                SOL_SOCKET,
                option,
                &limit,
                socklen_t(MemoryLayout<timeval>.size)
            )
        }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(descriptor, $0, size)
            }
        }
        guard status == 0 else {
            let code = errno
            close()
            throw TestFailure("nothing listens on port \(port) (errno \(code))")
        }
    }

    package func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            let count = unsafe bytes[sent...].withUnsafeBytes {
                unsafe Foundation.send(
                    descriptor,
                    $0.baseAddress,
                    $0.count,
                    Int32(MSG_NOSIGNAL)
                )
            }
            guard count > 0 else { throw TestFailure("the connection was closed to us") }
            sent += count
        }
    }

    /// Returns the bytes that have arrived; waits for the first of them.
    package func receive() throws -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 65536)
        let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
        guard count > 0 else { throw TestFailure("the connection was ended, or silent") }
        return Array(buffer[0..<count])
    }

    package func receiveAll() throws -> [UInt8] {
        var received: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
            if count == 0 { return received }
            guard count > 0 else {
                throw TestFailure(
                    "the connection broke or was silent, after \(received.count) bytes"
                )
            }
            received += buffer[0..<count]
        }
    }

    package func close() {
        _ = Foundation.close(descriptor)
    }

    /// Closes it so that the other side notices at once.
    package func reset() {
        var option = linger(l_onoff: 1, l_linger: 0)
        let size = socklen_t(MemoryLayout<linger>.size)
        unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, size)
        close()
    }
}

private let portsGiven = Atomic(Int.random(in: 0..<12_000))

/// Returns a port of this machine without a listener, for a listener that cannot choose its own. It
/// is below the range of outgoing connections, and each call returns another one.
package func freePort() throws -> Int {
    for _ in 0..<200 {
        let given = portsGiven.wrappingAdd(1, ordering: .relaxed).newValue
        let port = UInt16(20_000 + given % 12_000)
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isFree = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe bind(descriptor, $0, size) == 0
            }
        }
        if isFree { return Int(port) }
    }
    throw TestFailure("no free port")
}
