internal import CUV
internal import Glibc

/// Listens on one address and hands out each connection as a `TCPStream` of the same loop.
/// Confined to its loop's thread.
@safe
package final class TCPListener: LoopHandle {
    private var onAccept: ((TCPStream) -> Void)?
    /// The port that is bound: the one asked for, or what the kernel chose for 0.
    package private(set) var port = 0

    /// Binds and listens. On the loop only. A host name is looked up, which blocks.
    ///
    /// - Parameters:
    ///   - host: A numeric address or a name; the first address it has is taken.
    ///   - port: 0...65535; 0 takes any free one.
    ///   - sharesPort: Lets several loops of this process listen on one port (`SO_REUSEPORT`); the
    ///     kernel shares connections out. Another process of the same user could join in unseen.
    ///   - backlog: Connections that the kernel holds until they are accepted.
    ///   - loop: Whose thread this is called on.
    ///   - onAccept: Takes over the stream, which does not read yet.
    /// - Throws: `EventLoopError`, as when the port is taken.
    package init(
        host: String,
        port: Int,
        sharesPort: Bool = false,
        backlog: Int32 = 1024,
        on loop: EventLoop,
        onAccept: @escaping (TCPStream) -> Void
    ) throws {
        self.onAccept = onAccept
        super.init(UV_TCP, on: loop)
        try unsafe withResolved(host, port) { address throws in
            try unsafe open(address, sharesPort: sharesPort, backlog: backlog)
        }
    }

    private func open(
        _ address: UnsafePointer<sockaddr>,
        sharesPort: Bool,
        backlog: Int32
    ) throws {
        let tcp = unsafe pointer(as: uv_tcp_t.self)
        let family = unsafe UInt32(address.pointee.sa_family)
        try check(unsafe uv_tcp_init_ex(loop.uv, tcp, family), "uv_tcp_init_ex")
        adopt()
        do {
            if sharesPort {
                var descriptor: Int32 = -1
                var on: Int32 = 1
                unsafe uv_fileno(pointer(as: uv_handle_t.self), &descriptor)
                let length = socklen_t(MemoryLayout<Int32>.size)
                let status = unsafe setsockopt(
                    descriptor,
                    SOL_SOCKET,
                    SO_REUSEPORT,
                    &on,
                    length
                )
                try check(status == 0 ? 0 : -errno, "SO_REUSEPORT")
            }
            try check(unsafe uv_tcp_bind(tcp, address, 0), "bind")
            let stream = unsafe pointer(as: uv_stream_t.self)
            let status = unsafe uv_listen(stream, backlog) { stream, status in
                guard let listener = unsafe TCPListener.from(stream?.pointee.data) else { return }
                listener.accept(status)
            }
            try check(status, "listen")
            port = try boundPort()
        } catch {
            close()
            throw error
        }
    }

    private func accept(_ status: Int32) {
        guard status == 0, let stream = try? TCPStream(acceptedFrom: self) else { return }
        guard let onAccept else { return stream.close() }
        onAccept(stream)
    }

    private func boundPort() throws -> Int {
        var storage = sockaddr_storage()
        var length = Int32(MemoryLayout<sockaddr_storage>.size)
        return try unsafe withUnsafeMutablePointer(to: &storage) { pointer in
            let address = UnsafeMutableRawPointer(pointer)
            try check(
                unsafe uv_tcp_getsockname(
                    self.pointer(as: uv_tcp_t.self),
                    address.assumingMemoryBound(to: sockaddr.self),
                    &length
                ),
                "getsockname"
            )
            // sin_port and sin6_port lie at the same place.
            let inet = unsafe address.assumingMemoryBound(to: sockaddr_in.self)
            return unsafe Int(UInt16(bigEndian: inet.pointee.sin_port))
        }
    }

    override func willClose() { onAccept = nil }
}

/// Whether a port is free for a listener that does not share it: two processes that share ports
/// would otherwise both start, and each get half of the connections.
package func checkPortIsFree(host: String, port: Int) throws {
    try unsafe withResolved(host, port) { address throws in
        let family = unsafe Int32(address.pointee.sa_family)
        let descriptor = socket(family, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { throw EventLoopError(status: -errno, call: "socket") }
        defer { Glibc.close(descriptor) }
        var on: Int32 = 1
        let size = socklen_t(MemoryLayout<Int32>.size)
        unsafe setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, size)
        let length = socklen_t(
            family == AF_INET6
                ? MemoryLayout<sockaddr_in6>.size : MemoryLayout<sockaddr_in>.size
        )
        guard unsafe bind(descriptor, address, length) == 0 else {
            throw EventLoopError(status: -errno, call: "bind")
        }
    }
}

private func withResolved<Result>(
    _ host: String,
    _ port: Int,
    _ body: (UnsafePointer<sockaddr>) throws -> Result
) throws -> Result {
    guard (0...65535).contains(port) else {
        throw EventLoopError(status: -EINVAL, call: "listen on port \(port)")
    }
    var hints = unsafe addrinfo()
    unsafe hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV
    unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    var list: UnsafeMutablePointer<addrinfo>?
    let status = unsafe getaddrinfo(host, String(port), &hints, &list)
    guard status == 0, let list = unsafe list, let address = unsafe list.pointee.ai_addr else {
        throw EventLoopError(status: -EADDRNOTAVAIL, call: "look up \(host)")
    }
    defer { unsafe freeaddrinfo(list) }
    return try unsafe body(UnsafePointer(address))
}

private func check(_ status: Int32, _ call: String) throws {
    guard status == 0 else { throw EventLoopError(status: status, call: call) }
}
