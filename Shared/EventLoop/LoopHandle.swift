internal import CUV
internal import Glibc

/// One libuv handle with its memory. Confined to its loop's thread.
///
/// While it is open libuv retains it, so a handle without other references still works, and must be
/// closed. The memory is freed in libuv's close callback, never earlier.
@safe
package class LoopHandle {
    package let loop: EventLoop
    private let memory: UnsafeMutableRawPointer
    package private(set) var isClosed = false

    init(_ type: uv_handle_type, on loop: EventLoop) {
        loop.checkIsolated()
        self.loop = loop
        unsafe memory = .allocate(
            byteCount: uv_handle_size(type),
            alignment: MemoryLayout<UnsafeRawPointer>.alignment
        )
    }

    deinit { unsafe memory.deallocate() }

    /// Returns the handle as libuv's type.
    func pointer<Handle>(as type: Handle.Type) -> UnsafeMutablePointer<Handle> {
        unsafe memory.assumingMemoryBound(to: Handle.self)
    }

    /// Makes libuv retain `self`. Call once, right after libuv's own `init` has succeeded.
    func adopt() {
        unsafe pointer(as: uv_handle_t.self).pointee.data =
            Unmanaged.passRetained(self).toOpaque()
    }

    /// Closes the handle; no callback comes after this. A repeated call changes nothing.
    package func close() {
        guard !isClosed else { return }
        isClosed = true
        willClose()
        unsafe uv_close(pointer(as: uv_handle_t.self)) { handle in
            guard let data = unsafe handle?.pointee.data else { return }
            unsafe Unmanaged<LoopHandle>.fromOpaque(data).takeRetainedValue().didClose()
        }
    }

    /// Drops closures in subclasses, to release their captures.
    func willClose() {}

    /// Called in subclasses when libuv has closed the handle.
    func didClose() {}

    /// Returns the Swift object of a handle that libuv passes to a callback.
    static func from(_ data: UnsafeMutableRawPointer?) -> Self? {
        guard let data = unsafe data else { return nil }
        let handle = unsafe Unmanaged<LoopHandle>.fromOpaque(data).takeUnretainedValue()
        handle.loop.callbackBegan()
        return handle as? Self
    }
}

/// The events that a descriptor is ready for.
package struct DescriptorReadiness: OptionSet, Sendable {
    package let rawValue: Int32
    package init(rawValue: Int32) { self.rawValue = rawValue }

    package static let readable = DescriptorReadiness(rawValue: 1)
    package static let writable = DescriptorReadiness(rawValue: 2)
    package static let disconnected = DescriptorReadiness(rawValue: 4)
}

/// Watches the readiness of a descriptor, level-triggered. Close it before the descriptor.
@safe
package final class DescriptorWatch: LoopHandle {
    private var handler: ((DescriptorReadiness) -> Void)?

    /// The events to wait for; empty at first.
    package var interest: DescriptorReadiness = [] {
        didSet {
            guard interest != oldValue, !isClosed else { return }
            apply()
        }
    }

    fileprivate init(
        descriptor: Int32,
        on loop: EventLoop,
        handler: @escaping (DescriptorReadiness) -> Void
    ) {
        self.handler = handler
        super.init(UV_POLL, on: loop)
        let status = unsafe uv_poll_init(loop.uv, pointer(as: uv_poll_t.self), descriptor)
        // EBADF and ENOTPOLL are our own mistakes, not a peer's.
        precondition(status == 0, "uv_poll_init(\(descriptor)): \(status)")
        adopt()
    }

    private func apply() {
        let poll = unsafe pointer(as: uv_poll_t.self)
        guard !interest.isEmpty else {
            unsafe uv_poll_stop(poll)
            return
        }
        let status = unsafe uv_poll_start(poll, interest.rawValue) { handle, status, events in
            guard let watch = unsafe DescriptorWatch.from(handle?.pointee.data) else { return }
            guard status < 0 else {
                watch.handler?(DescriptorReadiness(rawValue: events))
                return
            }
            // A failed poll is reported as readiness: the owner's next call gets the error itself,
            // but reads bytes from before a reset first. libuv has stopped the watch, so it starts
            // again.
            watch.handler?(watch.interest)
            if !watch.isClosed { watch.apply() }
        }
        precondition(status == 0, "uv_poll_start: \(status)")
    }

    override func willClose() { handler = nil }
}

/// A timer that fires once or repeatedly.
@safe
package final class LoopTimer: LoopHandle {
    private var body: (() -> Void)?
    private let repeats: Bool

    fileprivate init(
        after delay: Duration,
        every interval: Duration?,
        on loop: EventLoop,
        body: @escaping () -> Void
    ) {
        self.body = body
        repeats = interval != nil
        super.init(UV_TIMER, on: loop)
        let timer = unsafe pointer(as: uv_timer_t.self)
        unsafe uv_timer_init(loop.uv, timer)
        adopt()
        // libuv counts from the turn's start; a late turn must not shorten the wait.
        unsafe uv_update_time(loop.uv)
        unsafe uv_timer_start(
            timer,
            { handle in
                guard let timer = unsafe LoopTimer.from(handle?.pointee.data) else { return }
                timer.fire()
            },
            delay.wholeMilliseconds,
            interval.map { max(1, $0.wholeMilliseconds) } ?? 0
        )
    }

    private func fire() {
        let body = body
        if !repeats { close() }
        body?()
    }

    package func cancel() { close() }

    override func willClose() { body = nil }
}

/// Calls back for each signal of one number that the process receives.
@safe
package final class SignalWatch: LoopHandle {
    private var body: (() -> Void)?

    fileprivate init(_ number: Int32, on loop: EventLoop, body: @escaping () -> Void) {
        self.body = body
        super.init(UV_SIGNAL, on: loop)
        let signal = unsafe pointer(as: uv_signal_t.self)
        unsafe uv_signal_init(loop.uv, signal)
        adopt()
        let status = unsafe uv_signal_start(
            signal,
            { handle, _ in unsafe SignalWatch.from(handle?.pointee.data)?.body?() },
            number
        )
        precondition(status == 0, "uv_signal_start(\(number)): \(status)")
    }

    override func willClose() { body = nil }
}

extension EventLoop {
    /// Watches a descriptor that its owner keeps open until the watch is closed. libuv makes it
    /// non-blocking. On the loop only; one watch a descriptor.
    package func watch(
        _ descriptor: Int32,
        _ handler: @escaping (DescriptorReadiness) -> Void
    ) -> DescriptorWatch {
        DescriptorWatch(descriptor: descriptor, on: self, handler: handler)
    }

    /// Runs `body` on the loop after `delay`, then every `interval` if there is one. On the loop
    /// only. Resolution 1 ms, rounded up.
    @discardableResult
    package func schedule(
        after delay: Duration,
        every interval: Duration? = nil,
        _ body: @escaping () -> Void
    ) -> LoopTimer {
        LoopTimer(after: delay, every: interval, on: self, body: body)
    }

    /// Watches a signal. On the loop only.
    package func onSignal(_ number: Int32, _ body: @escaping () -> Void) -> SignalWatch {
        SignalWatch(number, on: self, body: body)
    }
}

extension Duration {
    /// The duration rounded up, and not below zero. More than a century is for ever.
    fileprivate var wholeMilliseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        return UInt64(min(seconds, 3_200_000_000)) * 1000
            + UInt64((attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000)
    }
}
