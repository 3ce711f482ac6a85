internal import JSON
internal import PushCore

/// The channels that must not be sent to now: their answer said so, or their unauthenticated sender
/// has used the daily limit. Pure: no clock of its own. Bounded: if a channel was evicted, MPNS
/// repeats its answer.
struct MPNSChannelThrottle {
    /// The daily limit of notifications that MPNS accepts for one channel without a certificate.
    static let dailyLimit = 500
    static let maximumChannels = 50_000
    private static let day: Int64 = 86_400_000

    private struct Channel {
        var heldUntil = Instant.earliest
        var dayBegan = Instant.earliest
        var sentToday = 0
    }

    /// The channels by their URIs, which come from devices.
    private var channels: [ExactString: Channel] = [:]

    var count: Int { channels.count }

    /// Counts a notification that is about to be sent.
    ///
    /// - Parameters:
    ///   - uri: The channel's URI.
    ///   - isAuthenticated: Whether we authenticate by a certificate: then there is no daily limit.
    ///   - now: The time.
    /// - Returns: How long to wait; `nil` if it may be sent.
    mutating func admit(_ uri: String, isAuthenticated: Bool, now: Instant) -> Duration? {
        let uri = ExactString(uri)
        guard var channel = channels[uri] ?? (isAuthenticated ? nil : Channel()) else { return nil }
        if channel.heldUntil > now {
            return .milliseconds(channel.heldUntil.milliseconds - now.milliseconds)
        }
        if isAuthenticated {
            channels[uri] = nil
            return nil
        }
        let dayEnds = channel.dayBegan.adding(milliseconds: Self.day)
        if dayEnds <= now {
            channel.dayBegan = now
            channel.sentToday = 0
        } else if channel.sentToday >= Self.dailyLimit {
            return .milliseconds(dayEnds.milliseconds - now.milliseconds)
        }
        channel.sentToday += 1
        remember(uri, channel, now)
        return nil
    }

    /// Blocks a channel after an answer that forbids to send.
    mutating func hold(_ uri: String, for wait: Duration, now: Instant) {
        let uri = ExactString(uri)
        var channel = channels[uri] ?? Channel()
        channel.heldUntil = now.adding(wait)
        remember(uri, channel, now)
    }

    private mutating func remember(_ uri: ExactString, _ channel: Channel, _ now: Instant) {
        if channels.count >= Self.maximumChannels, channels[uri] == nil { makeRoom(now) }
        channels[uri] = channel
    }

    /// Evicts expired entries. If too many are left, evicts those that only count, then all.
    private mutating func makeRoom(_ now: Instant) {
        channels = channels.filter {
            $0.value.heldUntil > now || $0.value.dayBegan.adding(milliseconds: Self.day) > now
        }
        if channels.count > Self.maximumChannels / 2 {
            channels = channels.filter { $0.value.heldUntil > now }
        }
        if channels.count > Self.maximumChannels / 2 { channels = [:] }
    }
}
