internal import CUV

/// Times a loop's turns: from the first callback after one wait to the beginning of the next wait.
/// Confined to the loop.
///
/// It uses its own clock: libuv's is updated whenever a timer starts, and by each further poll of
/// the descriptors when more than a thousand are ready.
struct Watchdog {
    private var limitNanoseconds: UInt64?
    private var report: (Duration) -> Void = { _ in }
    private var beganAt: UInt64?

    mutating func watch(limit: Duration, _ report: @escaping (Duration) -> Void) {
        limitNanoseconds = UInt64(clamping: Int64(max(0, limit / .nanoseconds(1))))
        self.report = report
    }

    /// Starts timing a turn before any code of ours; only the first call of a turn counts.
    mutating func turnBegan() {
        if limitNanoseconds != nil, beganAt == nil { beganAt = uv_hrtime() }
    }

    mutating func turnEnds() {
        guard let limitNanoseconds, let began = beganAt else { return }
        beganAt = nil
        let turn = uv_hrtime() - began
        if turn > limitNanoseconds { report(.nanoseconds(Int64(clamping: turn))) }
    }
}
