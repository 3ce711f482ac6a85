import PushCore

/// The retry limits and the backoff of each provider. The lower bounds come from the providers'
/// documentation: FCM wants 10 s before the first retry after a server error, and Apple allows for
/// a quarter of an hour.
enum RetryPolicy {
    /// The most attempts. With the backoff below they last for about two hours of a failing
    /// provider.
    static let attemptLimit = 15

    /// MPNS has no field for a notification's lifetime, and asks not to be sent old ones.
    static let maximumMPNSAge: Int64 = 6 * 3_600_000

    private static let cap: Int64 = 900_000

    /// The backoff after attempts that were not sent or had no answer. These are not server errors.
    static let unsent = Backoff(baseMilliseconds: 1000, capMilliseconds: 60_000)

    static func backoff(for platform: Platform, _ outcome: ProviderOutcome) -> Backoff {
        switch (platform, outcome) {
        case (_, .notSent), (_, .noAnswer): unsent
        // The lower half of a wait is fixed, the upper half is random: a wait of 20 s is at least
        // 10 s.
        case (.fcm, _): Backoff(baseMilliseconds: 20_000, capMilliseconds: cap)
        // MPNS asks for waits that begin at minutes.
        case (.mpns, _): Backoff(baseMilliseconds: 120_000, capMilliseconds: cap)
        // Our own database: other requests wait for it as well.
        case (.connection, _): Backoff(baseMilliseconds: 1000, capMilliseconds: 60_000)
        case (.apns, _), (.wns, _): Backoff(baseMilliseconds: 2000, capMilliseconds: cap)
        }
    }
}
