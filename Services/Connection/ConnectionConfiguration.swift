import ServiceShell
import Settings

/// The variables of this service only; `CommonConfiguration` has the shared ones.
struct ConnectionConfiguration: OwnConfiguration {
    /// The time over which a stopping node sends its clients away.
    let drain: Duration
    let maximum: Int
    let maximumOfAddress: Int
    let loginsPerSecond: Int

    static let variables = Variable.all

    /// The default: as many as descriptors allow, to which the server lowers it.
    static let maximumConnections = 1_000_000

    init(_ reader: ConfigurationReader) throws {
        drain = try reader.value(of: Variable.drain)
        maximum = try reader.value(of: Variable.maximum)
        maximumOfAddress = try reader.value(of: Variable.maximumOfAddress)
        loginsPerSecond = try reader.value(of: Variable.loginsPerSecond)
    }

    enum Variable {
        static let drain = Setting<Duration>(
            "CONNECTION_DRAIN",
            in: .zero ... .seconds(600),
            default: .seconds(20),
            "how long a stopping node takes to send its clients away, within SHUTDOWN_GRACE; too"
                + " short overloads the other nodes"
        )
        static let maximum = Setting<Int>(
            "CONNECTION_MAX",
            in: 1...1_000_000,
            default: maximumConnections,
            "open connections of devices; more are refused with 503. Fewer where the limit of"
                + " descriptors leaves fewer; those beyond are closed"
        )
        static let maximumOfAddress = Setting<Int>(
            "CONNECTION_MAX_PER_ADDRESS",
            in: 0...1_000_000,
            default: 1000,
            "open connections of one address, 0: no limit; phones behind one gateway share one"
        )
        static let loginsPerSecond = Setting<Int>(
            "CONNECTION_LOGIN_RATE",
            in: 1...100_000,
            default: 2000,
            "logins a second; more wait, so that a restart does not overload Postgres"
        )

        static let all: [SettingEntry] = [
            drain.entry, maximum.entry, maximumOfAddress.entry, loginsPerSecond.entry,
        ]
    }
}
