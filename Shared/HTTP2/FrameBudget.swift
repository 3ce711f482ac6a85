/// The budget of frames and bytes that a server may make a client read: every frame counts, of any
/// type and on any stream. Each request adds to the budget, and so does time. An honest server
/// sends a few frames for each answer; a flood of PING, SETTINGS, interim answers, CONTINUATION and
/// unknown types, or bodies on closed streams, uses it up.
///
/// It parses frame headers itself: libnghttp2 skips many frames silently. Pure: the caller passes
/// the clock, which is read only when nothing is left.
struct FrameBudget {
    /// The frames allowed before any request.
    static let burst = 4096.0
    /// The frames of one request: an answer of the largest allowed size, in small frames.
    static let perRequest = 512.0
    static let perSecond = 1000.0
    /// The most that is saved up: thousands of honest answers leave much unused.
    static let most = 65_536.0
    /// The bytes that cost as much as a frame.
    static let bytesPerToken = 1024.0

    private var tokens = burst
    private var filledAt: ContinuousClock.Instant?
    /// The bytes left of the present frame.
    private var payloadLeft = 0
    /// The number of bytes of an incomplete frame header, and its length field.
    private var headerBytes = 0
    private var length = 0

    private static let headerLength = 9

    mutating func requested() { tokens = min(Self.most, tokens + Self.perRequest) }

    /// Counts the bytes; false if the budget is used up.
    mutating func admit(
        _ bytes: UnsafeRawBufferPointer,
        at now: @autoclosure () -> ContinuousClock.Instant
    ) -> Bool {
        tokens -= Double(bytes.count) / Self.bytesPerToken
        var offset = 0
        while offset < bytes.count {
            if payloadLeft > 0 {
                let skipped = min(payloadLeft, bytes.count - offset)
                payloadLeft -= skipped
                offset += skipped
                continue
            }
            if headerBytes < 3 { length = unsafe length << 8 | Int(bytes[offset]) }
            headerBytes += 1
            offset += 1
            if headerBytes == Self.headerLength {
                payloadLeft = length
                headerBytes = 0
                length = 0
                tokens -= 1
            }
        }
        return tokens >= 0 || isRefilled(at: now())
    }

    private mutating func isRefilled(at now: ContinuousClock.Instant) -> Bool {
        // The first refill counts one second since the connection's start.
        let seconds = filledAt.map { (now - $0) / .seconds(1) } ?? 1
        filledAt = now
        tokens = min(Self.burst, tokens + seconds * Self.perSecond)
        return tokens >= 0
    }
}
