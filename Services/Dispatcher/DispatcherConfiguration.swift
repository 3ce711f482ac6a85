import PushEvents
import PushProviders
import ServiceKit
import ServiceShell
import Settings
import Storage

/// The configuration of the dispatcher. Read once, then passed as values. The declaration of each
/// variable says what it accepts and means.
struct DispatcherConfiguration: Sendable {
    /// The dispatcher sets the database's connections, their name and their limits itself.
    var common: CommonConfiguration
    var groupID: String
    var inFlight: Int
    var shards: Int
    var checkpointEvery: Int
    var hold: Duration
    var shutdownGrace: Duration
    var idempotencyRetention: Duration
    var deliveryRetention: Duration
    var pushRetention: Duration
    var auditRetention: Duration
    var syncCoalesce: Duration
    var tombstoneRetention: Duration
    var providers: ProviderConfiguration
    var isMPNSEnabled: Bool
    /// How long a message waits for a device's connection, if its push has no expiry.
    var connectionKeep: Duration
    /// The maximum number of messages that wait for one device.
    var connectionWaiting: Int

    init(reader: ConfigurationReader) throws {
        common = try CommonConfiguration(reader, service: "dispatcher")
        groupID = try reader.value(of: Variable.groupID)
        inFlight = try reader.value(of: Variable.inFlight)
        shards = try reader.value(of: Variable.shards)
        checkpointEvery = try reader.value(of: Variable.checkpointEvery)
        hold = try reader.value(of: Variable.hold)
        shutdownGrace = try reader.value(of: ServiceVariable.shutdownGrace)
        idempotencyRetention = try reader.value(of: Variable.idempotencyRetention)
        deliveryRetention = try reader.value(of: Variable.deliveryRetention)
        pushRetention = try reader.value(of: Variable.pushRetention)
        auditRetention = try reader.value(of: Variable.auditRetention)
        syncCoalesce = try reader.value(of: Variable.syncCoalesce)
        tombstoneRetention = try reader.value(of: Variable.tombstoneRetention)
        providers = try ProviderConfiguration(reader)
        isMPNSEnabled = try reader.value(of: Variable.isMPNSEnabled)
        connectionKeep = try reader.value(of: Variable.connectionKeep)
        connectionWaiting = try reader.value(of: Variable.connectionWaiting)
    }

    var retention: Retention {
        let day = Duration.seconds(86_400)
        return Retention(
            deliveryDays: Int((deliveryRetention / day).rounded(.up)),
            eventKeys: idempotencyRetention,
            pushes: pushRetention,
            audit: auditRetention
        )
    }

    /// The default of `HTTP_PORT`.
    static let operationsPort = 8084

    static let variables =
        CommonConfiguration.variables + Variable.all + ProviderConfiguration.Variable.all

    enum Variable {
        private static let day = Duration.seconds(86_400)

        static let groupID = Setting.consumerGroup(of: .dispatcher)
        static let inFlight = Setting<Int>(
            "DISPATCH_IN_FLIGHT",
            in: 1...100_000,
            default: 4096,
            "deliveries owned at once; fewer idle the connections, more cost memory and repeat more"
                + " after a crash"
        )
        static let shards = Setting<Int>(
            "DISPATCH_SHARDS",
            in: 1...256,
            default: 4,
            "shards of broadcasts that a replica works on at once; fewer wait more for"
                + " Postgres, more"
                + " repeat more after a crash"
        )
        static let checkpointEvery = Setting<Int>(
            "DISPATCH_CHECKPOINT_EVERY",
            in: 1...100_000,
            default: 1000,
            "deliveries of a shard between two checkpoints; fewer cost more transactions, more cost"
                + " memory and repeat more after a crash"
        )
        static let hold = Setting<Duration>(
            "DISPATCH_HOLD",
            in: .milliseconds(10) ... .seconds(10),
            default: .milliseconds(500),
            "how long an event for few devices waits for its answers before it is written"
                + " down as rows;"
                + " shorter costs Postgres more, longer shows slow pushes later"
        )
        static let idempotencyRetention = Setting<Duration>(
            "IDEMPOTENCY_RETENTION",
            in: .seconds(60)...day * 3650,
            default: day * 7,
            "how long an event's id is remembered; where Kafka stores the record for longer,"
                + " a replay is pushed again"
        )
        static let deliveryRetention = Setting<Duration>(
            "DELIVERY_RETENTION",
            in: day * 2...day * 3650,
            default: day * 7,
            "retention of delivery rows; a delivery that could not be sent within half of it"
                + " expires,"
                + " so it also bounds how long a slow pace may take"
        )
        static let pushRetention = Setting<Duration>(
            "PUSH_RETENTION",
            in: day * 2...day * 36_500,
            default: day * 90,
            "retention of push records"
        )
        static let auditRetention = Setting<Duration>(
            "AUDIT_RETENTION",
            in: day...day * 36_500,
            default: day * 90,
            "retention of the audit trail"
        )
        static let syncCoalesce = Setting<Duration>(
            "SYNC_COALESCE",
            in: .milliseconds(0) ... .seconds(3600),
            default: .milliseconds(500),
            "how long changes of one dataset are gathered before its devices are notified;"
                + " shorter notifies more often, longer later"
        )
        static let tombstoneRetention = Setting<Duration>(
            "SYNC_TOMBSTONE_RETENTION",
            in: .seconds(60)...day * 3650,
            default: day * 90,
            "retention of tombstones of removed dataset records; a device that was offline"
                + " for longer may restore one"
        )
        static let isMPNSEnabled = Setting<Bool>(
            "MPNS_ENABLED",
            default: true,
            "whether MPNS channels of Windows Phone are sent to; false suppresses their deliveries"
        )
        static let connectionKeep = Setting<Duration>(
            "CONNECTION_KEEP",
            in: .seconds(60)...day * 28,
            default: day * 7,
            "how long a message waits for a device with a connection of its own, if its push has"
                + " no expiry; pushes with one wait until then, at most 28 days"
        )
        static let connectionWaiting = Setting<Int>(
            "CONNECTION_WAITING",
            in: 1...1000,
            default: 100,
            "the newest messages that wait for one device with a connection of its own; older ones"
                + " are displaced"
        )

        static let all: [SettingEntry] = [
            groupID.entry, inFlight.entry, shards.entry, checkpointEvery.entry, hold.entry,
            idempotencyRetention.entry, deliveryRetention.entry, pushRetention.entry,
            auditRetention.entry, syncCoalesce.entry, tombstoneRetention.entry, isMPNSEnabled.entry,
            connectionKeep.entry, connectionWaiting.entry,
        ]
    }
}
