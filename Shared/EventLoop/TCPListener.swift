internal import CUV
internal import Glibc

/// Listens on one address and returns each connection as a `TCPStream` of the same loop. Confined
/// to its loop's thread. While it is open the loop retains it.
///
/// It calls `accept` itself, without `uv_listen`: libuv 1.44 retries a failed `accept` without end,
/// so a process without descriptors would never leave that call. Here an error pauses the listener:
/// it stops watching its descriptor, and a timer resumes it. Connections wait in the backlog
/// meanwhile.
package final class TCPListener {
    package let loop: EventLoop
    /// The bound port: the requested one, or the kernel's choice for 0.
    package private(set) var port = 0
    /// Called for each pause after an error that does not concern one connection, like EMFILE.
    package var onPause: ((EventLoopError) -> Void)?

    private var onAccept: ((TCPStream) -> Void)?
    private var descriptor: Int32 = -1
    private var watch: DescriptorWatch?
    private var timer: LoopTimer?
    private var backoff = TCPListener.shortestPause

    /// The limit of accepts a turn: the rest of the backlog waits for the next turn, so that a
    /// flood of connections does not delay open ones.
    private static let acceptedPerTurn = 64
    private static let shortestPause: Duration = .milliseconds(10)
    private static let longestPause: Duration = .seconds(1)

    /// Binds and listens. On the loop only. A host name is resolved, which blocks.
    ///
    /// - Parameters:
    ///   - host: A numeric address or a name; its first address is used.
    ///   - port: 0...65535; 0 takes any free port.
    ///   - sharesPort: Lets several loops of this process listen on one port (`SO_REUSEPORT`); the
    ///     kernel distributes connections. Another process of the same user could join unnoticed.
    ///   - backlog: Connections that the kernel holds until they are accepted.
    ///   - loop: The loop of the current thread.
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
        loop.checkIsolated()
        self.loop = loop
        self.onAccept = onAccept
        descriptor = try unsafe withResolved(host, port) { address throws in
            try unsafe openListener(address, sharesPort: sharesPort, backlog: backlog)
        }
        do {
            self.port = try boundPort(of: descriptor)
        } catch {
            Glibc.close(descriptor)
            throw error
        }
        let watch = loop.watch(descriptor) { _ in self.acceptWaiting() }
        self.watch = watch
        watch.interest = .readable
    }

    /// Closes the listener; no callback comes after this. A repeated call changes nothing.
    package func close() {
        guard let watch else { return }
        watch.close()
        self.watch = nil
        timer?.cancel()
        timer = nil
        Glibc.close(descriptor)
        onAccept = nil
        onPause = nil
    }

    /// Ends a pause early, as when a descriptor was just closed.
    package func resume() {
        guard let timer, let watch else { return }
        timer.cancel()
        self.timer = nil
        watch.interest = .readable
    }

    private func acceptWaiting() {
        for _ in 0..<Self.acceptedPerTurn {
            guard watch != nil, timer == nil else { return }
            let accepted = carillon_accept(descriptor)
            guard accepted < 0 else {
                backoff = Self.shortestPause
                admit(accepted)
                continue
            }
            switch errno {
            case EAGAIN: return
            // Errors of the next connection only (`man accept`).
            case EINTR, ECONNABORTED, EPERM, EPROTO, ENOPROTOOPT, EOPNOTSUPP, ENETDOWN, ENONET,
                ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ETIMEDOUT:
                continue
            default: return pause(EventLoopError(status: -errno, call: "accept"))
            }
        }
    }

    private func admit(_ accepted: Int32) {
        guard let stream = try? TCPStream(adopting: accepted, on: loop) else { return }
        guard let onAccept else { return stream.close() }
        onAccept(stream)
    }

    private func pause(_ error: EventLoopError) {
        guard let watch, timer == nil else { return }
        watch.interest = []
        timer = loop.schedule(after: backoff) { [self] in resume() }
        backoff = min(backoff * 2, Self.longestPause)
        onPause?(error)
    }
}

/// - Returns: A nonblocking listening socket.
private func openListener(
    _ address: UnsafePointer<sockaddr>,
    sharesPort: Bool,
    backlog: Int32
) throws -> Int32 {
    let family = unsafe Int32(address.pointee.sa_family)
    let flags = Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
    let descriptor = socket(family, flags, 0)
    try check(descriptor, "socket")
    do {
        func set(_ level: Int32, _ option: Int32, _ value: Int32) throws {
            var value = value
            let size = socklen_t(MemoryLayout<Int32>.size)
            try check(unsafe setsockopt(descriptor, level, option, &value, size), "setsockopt")
        }
        try set(SOL_SOCKET, SO_REUSEADDR, 1)
        if sharesPort { try set(SOL_SOCKET, SO_REUSEPORT, 1) }
        // One socket for both families, whatever the system's default is.
        if family == AF_INET6 { try set(Int32(IPPROTO_IPV6), IPV6_V6ONLY, 0) }
        try check(unsafe bind(descriptor, address, lengthOfAddress(family)), "bind")
        try check(listen(descriptor, backlog), "listen")
        return descriptor
    } catch {
        Glibc.close(descriptor)
        throw error
    }
}

private func boundPort(of descriptor: Int32) throws -> Int {
    var storage = sockaddr_storage()
    var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
    return try unsafe withUnsafeMutablePointer(to: &storage) { pointer in
        let address = UnsafeMutableRawPointer(pointer)
        try check(
            unsafe getsockname(
                descriptor,
                address.assumingMemoryBound(to: sockaddr.self),
                &length
            ),
            "getsockname"
        )
        // sin_port and sin6_port are at the same offset.
        let inet = unsafe address.assumingMemoryBound(to: sockaddr_in.self)
        return unsafe Int(UInt16(bigEndian: inet.pointee.sin_port))
    }
}

private func lengthOfAddress(_ family: Int32) -> socklen_t {
    socklen_t(
        family == AF_INET6 ? MemoryLayout<sockaddr_in6>.size : MemoryLayout<sockaddr_in>.size
    )
}

/// Checks whether a port is free for a listener that does not share it: two processes that share
/// ports would otherwise both start, and each get half of the connections.
package func checkPortIsFree(host: String, port: Int) throws {
    try unsafe withResolved(host, port) { address throws in
        let family = unsafe Int32(address.pointee.sa_family)
        let descriptor = socket(family, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { throw EventLoopError(status: -errno, call: "socket") }
        defer { Glibc.close(descriptor) }
        var on: Int32 = 1
        let size = socklen_t(MemoryLayout<Int32>.size)
        unsafe setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, size)
        guard unsafe bind(descriptor, address, lengthOfAddress(family)) == 0 else {
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

/// Checks the result of a system call: below 0, `errno` has the reason.
private func check(_ result: Int32, _ call: String) throws {
    guard result >= 0 else { throw EventLoopError(status: -errno, call: call) }
}
