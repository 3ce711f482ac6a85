import PushEvents
import ServiceShell
import Settings

/// The variables of this service only; `CommonConfiguration` has the shared ones.
struct ConfigWatcherConfiguration: OwnConfiguration {
    let groupID: String
    /// The time for which publishes of one template are gathered; at least half a second.
    let coalesce: Duration
    /// The time over which clients are notified.
    let spread: Duration
    /// The retention of versions that are not current.
    let retention: Duration

    static let variables = Variable.all

    init(_ reader: ConfigurationReader) throws {
        groupID = try reader.value(of: Variable.groupID)
        coalesce = try reader.value(of: Variable.coalesce)
        spread = try reader.value(of: Variable.spread)
        retention = try reader.value(of: Variable.retention)
    }

    enum Variable {
        private static let day = Duration.seconds(86_400)

        static let groupID = Setting.consumerGroup(of: .configWatcher)
        static let coalesce = Setting<Duration>(
            "CONFIG_COALESCE",
            in: .zero ... .seconds(3600),
            default: .seconds(1),
            "how long publishes of one template are gathered before the highest is announced, at"
                + " least 500ms; too long keeps clients stale, too short notifies them again"
                + " and again"
        )
        static let spread = Setting<Duration>(
            "CONFIG_SPREAD",
            in: .zero...day,
            default: .zero,
            "time over which an app's clients are notified of a version; 0: all at once, and"
                + " all fetch at"
                + " once"
        )
        static let retention = Setting<Duration>(
            "CONFIG_RETENTION",
            in: day...(day * 3650),
            default: day * 90,
            "retention of template versions that are not current; at most 300 are stored"
        )

        static let all: [SettingEntry] = [
            groupID.entry, coalesce.entry, spread.entry, retention.entry,
        ]
    }
}
