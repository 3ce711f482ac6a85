internal import CUV
internal import Glibc

/// One accepted connection: bytes in, bytes out. Confined to its loop's thread.
///
/// Only its owner closes it, by `close`; after that no closure of it runs.
@safe
package final class TCPStream: LoopHandle {
    package enum End: Equatable {
        /// The peer will send no more, and may still read.
        case finished
        /// The connection is broken.
        case failed(status: Int32)
    }

    /// The peer's numeric address, without its port.
    package private(set) var remoteAddress = ""
    /// The bytes that the kernel has not taken yet.
    package var pendingBytes: Int {
        isClosed ? 0 : unsafe uv_stream_get_write_queue_size(pointer(as: uv_stream_t.self))
    }
    private var writtenBytes = 0
    /// The written bytes that the peer's system has not taken, as the peer's program does not read
    /// them. Costs a system call.
    package var untakenBytes: Int {
        var unsent: Int32 = 0
        if !isClosed { _ = unsafe ioctl(descriptor, UInt(TIOCOUTQ), &unsent) }
        return pendingBytes + Int(unsent)
    }
    /// The written bytes that the peer's system has taken. Costs a system call.
    package var takenBytes: Int { writtenBytes - untakenBytes }

    /// Called with received bytes, which are only valid during the call.
    package var onRead: ((UnsafeRawBufferPointer) -> Void)?
    package var onEnd: ((End) -> Void)?
    /// Called after the kernel has taken a part of the bytes that `write` buffered.
    package var onWritten: (() -> Void)?

    private var isReading = false
    private var shutsDownWhenWritten = false

    /// Takes over the descriptor of a connection, even if it throws.
    init(adopting accepted: Int32, on loop: EventLoop) throws {
        super.init(UV_TCP, on: loop)
        let tcp = unsafe pointer(as: uv_tcp_t.self)
        let initialized = unsafe uv_tcp_init(loop.uv, tcp)
        guard initialized == 0 else {
            Glibc.close(accepted)
            throw EventLoopError(status: initialized, call: "uv_tcp_init")
        }
        adopt()
        let opened = unsafe uv_tcp_open(tcp, accepted)
        guard opened == 0 else {
            close()
            Glibc.close(accepted)
            throw EventLoopError(status: opened, call: "uv_tcp_open")
        }
        unsafe uv_tcp_nodelay(tcp, 1)
        remoteAddress = peerAddress()
    }

    // MARK: Reading

    package func startReading() {
        guard !isReading, !isClosed else { return }
        isReading = true
        let status = unsafe uv_read_start(
            pointer(as: uv_stream_t.self),
            { handle, _, buffer in
                guard let stream = unsafe TCPStream.from(handle?.pointee.data) else { return }
                let scratch = unsafe stream.loop.readBuffer
                unsafe buffer?.pointee.base = scratch.baseAddress?.assumingMemoryBound(
                    to: CChar.self
                )
                unsafe buffer?.pointee.len = scratch.count
            },
            { handle, count, _ in
                guard let stream = unsafe TCPStream.from(handle?.pointee.data) else { return }
                stream.didRead(count)
            }
        )
        if status != 0 { end(.failed(status: status)) }
    }

    /// Stops reading: the kernel's buffer then fills, and the peer has to wait.
    package func stopReading() {
        guard isReading, !isClosed else { return }
        isReading = false
        unsafe uv_read_stop(pointer(as: uv_stream_t.self))
    }

    private func didRead(_ count: Int) {
        if count > 0 {
            unsafe onRead?(UnsafeRawBufferPointer(rebasing: loop.readBuffer[..<count]))
        } else if count < 0 {
            stopReading()
            end(count == Int(UV_EOF.rawValue) ? .finished : .failed(status: Int32(count)))
        }
    }

    private func end(_ end: End) { onEnd?(end) }

    // MARK: Writing

    /// Sends the bytes that the kernel takes at once, and buffers the rest.
    package func write(_ bytes: [UInt8]) {
        guard !bytes.isEmpty, !isClosed else { return }
        writtenBytes += bytes.count
        var sent = 0
        if pendingBytes == 0 {
            let taken = unsafe bytes.withUnsafeBytes { raw in
                unsafe withBuffer(raw) { buffer in
                    unsafe uv_try_write(pointer(as: uv_stream_t.self), &buffer, 1)
                }
            }
            if taken == bytes.count { return }
            if taken > 0 {
                sent = Int(taken)
            } else if taken != UV_EAGAIN.rawValue {
                return fail(taken)
            }
        }
        let pending = PendingWrite(bytes[sent...], of: self)
        let status = unsafe pending.submit(to: pointer(as: uv_stream_t.self))
        if status != 0 { fail(status) }
    }

    /// Notifies the owner at the end of the turn, so that `write` never calls back into its caller.
    private func fail(_ status: Int32) {
        loop.atEndOfTurn { [weak self] in
            guard let self, !self.isClosed else { return }
            self.end(.failed(status: status))
        }
    }

    fileprivate func didWrite(_ status: Int32) {
        guard !isClosed else { return }
        guard status == 0 else { return end(.failed(status: status)) }
        if pendingBytes == 0, shutsDownWhenWritten { shutDownNow() }
        onWritten?()
    }

    /// Ends our side once all is written; the peer's side may continue.
    package func shutDown() {
        guard !isClosed else { return }
        if pendingBytes > 0 { shutsDownWhenWritten = true } else { shutDownNow() }
    }

    private func shutDownNow() {
        _ = Glibc.shutdown(descriptor, Int32(SHUT_WR))
    }

    /// Ends the connection by a reset: unsent bytes are dropped, and the peer notices.
    package func closeWithReset() {
        guard !isClosed else { return }
        var linger = Glibc.linger(l_onoff: 1, l_linger: 0)
        let size = socklen_t(MemoryLayout<Glibc.linger>.size)
        unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, size)
        close()
    }

    // MARK: The socket

    private var descriptor: Int32 {
        var descriptor: Int32 = -1
        unsafe uv_fileno(pointer(as: uv_handle_t.self), &descriptor)
        return descriptor
    }

    private func peerAddress() -> String {
        var storage = sockaddr_storage()
        var length = Int32(MemoryLayout<sockaddr_storage>.size)
        var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        let status = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
            let address = unsafe UnsafeMutableRawPointer(pointer)
                .assumingMemoryBound(to: sockaddr.self)
            let found = unsafe uv_tcp_getpeername(
                self.pointer(as: uv_tcp_t.self),
                address,
                &length
            )
            guard found == 0 else { return found }
            return unsafe getnameinfo(
                address,
                socklen_t(length),
                &text,
                socklen_t(text.count),
                nil,
                0,
                NI_NUMERICHOST
            )
        }
        guard status == 0 else { return "" }
        let end = text.firstIndex(of: 0) ?? text.endIndex
        let address = String(decoding: text[..<end].map(UInt8.init(bitPattern:)), as: UTF8.self)
        return address.hasPrefix("::ffff:") ? String(address.dropFirst(7)) : address
    }

    override func willClose() {
        unsafe onRead = nil
        onEnd = nil
        onWritten = nil
    }
}

/// One `uv_write`: libuv retains it, and the bytes it owns, until its callback.
@safe
private final class PendingWrite {
    private let request = UnsafeMutablePointer<uv_write_t>.allocate(capacity: 1)
    private let bytes: UnsafeMutableRawBufferPointer
    private let stream: TCPStream

    init(_ slice: ArraySlice<UInt8>, of stream: TCPStream) {
        self.stream = stream
        unsafe bytes = .allocate(byteCount: slice.count, alignment: 1)
        unsafe bytes.copyBytes(from: slice)
    }

    deinit {
        unsafe request.deallocate()
        unsafe bytes.deallocate()
    }

    func submit(to handle: UnsafeMutablePointer<uv_stream_t>) -> Int32 {
        let held = unsafe Unmanaged.passRetained(self)
        unsafe request.pointee.data = held.toOpaque()
        let status = unsafe withBuffer(UnsafeRawBufferPointer(bytes)) { buffer in
            unsafe uv_write(request, handle, &buffer, 1) { request, status in
                guard let data = unsafe request?.pointee.data else { return }
                let write = unsafe Unmanaged<PendingWrite>.fromOpaque(data).takeRetainedValue()
                write.stream.loop.callbackBegan()
                write.stream.didWrite(status)
            }
        }
        if status != 0 { unsafe held.release() }
        return status
    }
}

private func withBuffer(
    _ bytes: UnsafeRawBufferPointer,
    _ body: (inout uv_buf_t) -> Int32
) -> Int32 {
    // libuv only reads through the pointer, though its type is mutable.
    let base = unsafe UnsafeMutableRawPointer(mutating: bytes.baseAddress)
    var buffer = unsafe uv_buf_t(
        base: base?.assumingMemoryBound(to: CChar.self),
        len: bytes.count
    )
    return unsafe body(&buffer)
}
