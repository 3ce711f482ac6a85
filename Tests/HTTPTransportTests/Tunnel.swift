import EventLoop
import Glibc

/// A proxy that lets every client through to one port of this machine, and can be cut or frozen.
/// Confined to its loop.
final class Tunnel: @unchecked Sendable {
    private struct Joint {
        let near: TCPStream
        let far: Int32
        let watch: DescriptorWatch
    }

    private let target: Int
    private var streams: [TCPStream] = []
    private var joints: [Joint] = []
    private(set) var connections = 0
    /// Accepts bytes and forwards none.
    var isFrozen = false
    /// Accepts no bytes from the client, whose socket fills.
    var isPaused = false {
        didSet {
            for joint in joints { isPaused ? joint.near.stopReading() : joint.near.startReading() }
        }
    }
    /// If set, the client is read from once a turn of the loop, and this is called before.
    var onSlowRead: (() -> Void)?

    init(to target: Int) { self.target = target }

    func listen(on loop: EventLoop) throws -> Int {
        let port = try TCPListener(host: "127.0.0.1", port: 0, on: loop) { [self] stream in
            streams.append(stream)
            connections += 1
            var head: [UInt8] = []
            unsafe stream.onRead = { [self, unowned stream] bytes in
                unsafe head.append(contentsOf: bytes)
                guard head.suffix(4) == Array("\r\n\r\n".utf8) else { return }
                join(stream, on: loop)
            }
            stream.startReading()
        }.port
        fixReceiveBuffer(ofListener: port)
        return port
    }

    /// Accepted connections inherit the size, so a client whose tunnel is paused is soon blocked:
    /// the kernel would let the buffer grow to tens of megabytes.
    private func fixReceiveBuffer(ofListener port: Int) {
        for descriptor in Int32(3)..<4096 {
            var address = sockaddr_in()
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let status = unsafe withUnsafeMutablePointer(to: &address) { pointer in
                unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    unsafe getsockname(descriptor, $0, &length)
                }
            }
            guard status == 0, address.sin_family == sa_family_t(AF_INET),
                Int(UInt16(bigEndian: address.sin_port)) == port
            else { continue }
            var bytes: Int32 = 65_536
            let size = socklen_t(MemoryLayout<Int32>.size)
            unsafe setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, size)
        }
    }

    /// Closes both ends of every connection at once.
    func cut() {
        for joint in joints {
            joint.watch.close()
            _ = Glibc.close(joint.far)
        }
        for stream in streams { stream.closeWithReset() }
        joints = []
        streams = []
    }

    private func join(_ near: TCPStream, on loop: EventLoop) {
        let far = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(UInt16(target).bigEndian)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let status = unsafe withUnsafePointer(to: address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(far, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard status == 0 else { return near.closeWithReset() }
        let watch = loop.watch(far) { [self, unowned near] _ in
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = unsafe buffer.withUnsafeMutableBytes { bytes in
                unsafe read(far, bytes.baseAddress, bytes.count)
            }
            guard count > 0 else {
                guard count == 0 || errno != EAGAIN else { return }
                joints.first { $0.far == far }?.watch.close()
                return near.close()
            }
            if !isFrozen { near.write(Array(buffer[..<count])) }
        }
        watch.interest = .readable
        joints.append(Joint(near: near, far: far, watch: watch))
        unsafe near.onRead = { [self, unowned near] bytes in
            guard !isFrozen else { return }
            if let onSlowRead {
                onSlowRead()
                near.stopReading()
                loop.schedule(after: .zero) { [weak near] in near?.startReading() }
            }
            var sent = 0
            while sent < bytes.count {
                let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[sent...])
                let count = unsafe send(
                    far,
                    rest.baseAddress,
                    rest.count,
                    Int32(MSG_NOSIGNAL)
                )
                // The server is in this process and reads; a full buffer is soon empty.
                guard count > 0 || errno == EAGAIN else { return }
                sent += max(count, 0)
            }
        }
        near.onEnd = { [unowned near] _ in
            shutdown(far, Int32(SHUT_WR))
            near.close()
        }
        near.write(Array("HTTP/1.1 200 Connection established\r\n\r\n".utf8))
    }
}
