internal import CUV

/// Times a loop's turns: from the end of one wait to the beginning of the next. Confined to it.
struct Watchdog {
    private var limitMilliseconds: UInt64?
    private var tell: (Duration) -> Void = { _ in }
    private var beganAtMilliseconds: UInt64?

    mutating func watch(limit: Duration, _ tell: @escaping (Duration) -> Void) {
        limitMilliseconds = UInt64(max(0, limit / .milliseconds(1)))
        self.tell = tell
    }

    mutating func turnBegan(atMilliseconds time: UInt64) {
        if limitMilliseconds != nil { beganAtMilliseconds = time }
    }

    mutating func turnEnds() {
        guard let limitMilliseconds, let began = beganAtMilliseconds else { return }
        beganAtMilliseconds = nil
        let now = uv_hrtime() / 1_000_000
        guard now > began + limitMilliseconds else { return }
        tell(.milliseconds(Int64(now - began)))
    }
}
