import Logins
import ServiceShell
import Settings

/// The variables of this service only; `CommonConfiguration` has the shared ones.
struct SecurePayloadConfiguration: OwnConfiguration {
    let jwks: JWKSConfiguration
    /// The time for which read-once content can be read again.
    let readGrace: Duration
    /// The retention of the bare row of ended content.
    let retention: Duration
    /// The retention of a request's idempotency key.
    let keyRetention: Duration
    /// The limit of wrong secrets per minute for one identity from one address; 0: no limit.
    let failuresPerIdentity: Int

    static let variables = JWKSConfiguration.Variable.all + Variable.all

    init(_ reader: ConfigurationReader) throws {
        jwks = try JWKSConfiguration(reader)
        readGrace = try reader.value(of: Variable.readGrace)
        retention = try reader.value(of: Variable.retention)
        keyRetention = try reader.value(of: Variable.keyRetention)
        failuresPerIdentity = try reader.value(of: Variable.failuresPerIdentity)
    }

    enum Variable {
        private static let day = Duration.seconds(86_400)

        static let readGrace = Setting<Duration>(
            "SECURE_READ_GRACE",
            in: .zero...day,
            default: .seconds(60),
            "how long content that is read once can be read again by its identity; too short"
                + " loses content whose response was lost, too long lets a thief read it as well"
        )
        static let retention = Setting<Duration>(
            "SECURE_RETENTION",
            in: .zero...(day * 365),
            default: day * 7,
            "retention of the bare row of content that was deleted or has expired, for the"
                + " backend's list; then its id may be used again"
        )
        static let failuresPerIdentity = Setting<Int>(
            "SECURE_FAILURES_PER_IDENTITY",
            in: 0...1_000_000,
            default: 10,
            "wrong secrets of one identity from one address, a minute, and a tenth of the"
                + " ids that a"
                + " reader may get wrong, 0: no limit. Too many help those who guess, too few lock"
                + " out those who mistype"
        )
        static let keyRetention = Setting<Duration>(
            "IDEMPOTENCY_RETENTION",
            in: .seconds(60)...(day * 3650),
            default: day * 7,
            "how long an Idempotency-Key is remembered: a repeated request stores and pushes"
                + " nothing again"
        )

        static let all: [SettingEntry] = [
            readGrace.entry, retention.entry, failuresPerIdentity.entry, keyRetention.entry,
        ]
    }
}
