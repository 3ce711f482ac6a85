import PushCore

/// How often and how patiently a delivery is tried again. The providers' documentation names the lower
/// bounds: FCM wants 10 s before the first repeat after a server's error, and Apple allows for a
/// quarter of an hour.
enum RetryPolicy {
    /// With the back-off below this is about two hours of an ailing provider.
    static let attemptLimit = 15

    /// MPNS has no field for how long a notification is wanted, and asks not to be sent old ones.
    static let maximumMPNSAge: Int64 = 6 * 3_600_000

    private static let cap: Int64 = 900_000

    /// What never left, or is asked once more after silence, was no server's error.
    static let unsent = Backoff(baseMilliseconds: 1000, capMilliseconds: 60_000)

    static func backoff(for platform: Platform, _ outcome: ProviderOutcome) -> Backoff {
        switch (platform, outcome) {
        case (_, .notSent), (_, .noAnswer): unsent
        // The lower half of a wait is certain, the upper half spread: 20 s wait 10 at least.
        case (.fcm, _): Backoff(baseMilliseconds: 20_000, capMilliseconds: cap)
        // MPNS asks for waits that begin at minutes.
        case (.mpns, _): Backoff(baseMilliseconds: 120_000, capMilliseconds: cap)
        case (.apns, _), (.wns, _): Backoff(baseMilliseconds: 2000, capMilliseconds: cap)
        }
    }
}
