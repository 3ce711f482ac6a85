/// What a server may make a client read: every frame is counted, of whatever type and on whatever
/// stream, and its bytes. Each request brings some more, and so does time. An honest server says a
/// few frames for each answer; PING, SETTINGS, interim answers, CONTINUATION and unknown types in a
/// flood, and bodies on streams that are over, use it up whatever they look like.
///
/// Looks at frame headers by itself: libnghttp2 skips much without a word. Pure: the caller brings
/// the clock, which is asked only when little is left.
struct FrameBudget {
    /// What may come before anything was asked for.
    static let burst = 4096.0
    /// An answer of the largest size that we take, in small frames.
    static let perRequest = 512.0
    static let perSecond = 1000.0
    /// What is saved up at most: thousands of honest answers leave much unused.
    static let most = 65_536.0
    /// So many bytes cost as much as a frame.
    static let bytesPerToken = 1024.0

    private var tokens = burst
    private var filledAt: ContinuousClock.Instant?
    /// Of the frame that has begun.
    private var payloadLeft = 0
    /// Of the next frame's header, where it came in parts: how many bytes there were, and its length.
    private var headerBytes = 0
    private var length = 0

    private static let headerLength = 9

    mutating func requested() { tokens = min(Self.most, tokens + Self.perRequest) }

    /// False when there was too much.
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
        // The first time it counts from the connection's start, which was a moment ago at least.
        let seconds = filledAt.map { (now - $0) / .seconds(1) } ?? 1
        filledAt = now
        tokens = min(Self.burst, tokens + seconds * Self.perSecond)
        return tokens >= 0
    }
}
