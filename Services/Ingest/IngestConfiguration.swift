import Logins
import PushEvents
import ServiceShell
import Settings

/// The variables of this service only; `CommonConfiguration` has the shared ones.
struct IngestConfiguration: OwnConfiguration {
    let groupID: String
    /// Whether this process also writes the objects from Kafka to Postgres.
    let runsSink: Bool
    /// The retention of an `_id` after it was stored.
    let keyRetention: Duration
    /// The retention of opens and receipts.
    let pushRetention: Duration
    /// The limit of bytes that requests hold until Kafka has their objects.
    let maximumHeldBytes: Int
    let jwks: JWKSConfiguration
    let realm: Realm

    /// The limits of Realm's clients.
    struct Realm: Sendable {
        let maximumHeldBytes: Int
        let maximumSockets: Int
        let maximumSocketsOfAddress: Int
    }

    static let variables = JWKSConfiguration.Variable.all + Variable.all

    init(_ reader: ConfigurationReader) throws {
        groupID = try reader.value(of: Variable.groupID)
        runsSink = try reader.value(of: Variable.sink)
        keyRetention = try reader.value(of: Variable.keyRetention)
        pushRetention = try reader.value(of: Variable.pushRetention)
        maximumHeldBytes = try reader.value(of: Variable.maximumHeldBytes)
        jwks = try JWKSConfiguration(reader)
        realm = Realm(
            maximumHeldBytes: try reader.value(of: Variable.realmHeldBytes),
            maximumSockets: try reader.value(of: Variable.realmSockets),
            maximumSocketsOfAddress: try reader.value(of: Variable.realmSocketsOfAddress)
        )
    }

    enum Variable {
        private static let day = Duration.seconds(86_400)

        static let groupID = Setting.consumerGroup(
            of: .ingest,
            "; the sink's group is it with -ingest behind, unless it ends in ingest already"
        )
        static let sink = Setting<Bool>(
            "INGEST_SINK",
            takes: "on or off",
            default: true,
            shown: "on",
            "whether this replica also writes objects to Postgres; off: it only accepts them"
        ) { text in
            switch text {
            case "on": true
            case "off": false
            default: nil
            }
        }
        static let keyRetention = Setting<Duration>(
            "INGEST_KEY_RETENTION",
            in: day...day * 3650,
            default: day * 30,
            "how long an object's _id is remembered after it was stored; sent again later it"
                + " is another object, so no client may hold one for longer"
        )
        static let pushRetention = Setting<Duration>(
            "PUSH_RETENTION",
            in: day * 2...day * 36_500,
            default: day * 90,
            "retention of opens and receipts; as the dispatcher's for pushes"
        )
        static let maximumHeldBytes = Setting<Int>(
            "INGEST_MAX_HELD_BYTES",
            in: (16 << 20)...(1 << 36),
            unit: .bytes,
            default: 64 << 20,
            "maximum bytes of objects that wait for Kafka, four fifths of it for one app;"
                + " beyond it requests are refused, 503, or 429 to Segment's clients. Too little"
                + " refuses"
                + " what a short pause of the broker would let through"
        )

        static let realmHeldBytes = Setting<Int>(
            "INGEST_REALM_MAX_HELD_BYTES",
            in: (64 << 20)...(1 << 36),
            unit: .bytes,
            default: 512 << 20,
            "maximum bytes of Realm clients' uploads: half for those that arrive or wait, four fifths"
                + " of it for one app, and half for those that are decoded. A byte that arrives counts"
                + " twice, one that is decoded four times. One upload, of at most 64 MiB, may exceed it."
                + " Beyond it clients wait, or are disconnected and repeat"
        )
        static let realmSockets = Setting<Int>(
            "INGEST_REALM_MAX_SOCKETS",
            in: 1...1_000_000,
            default: 50_000,
            "open WebSockets of Realm clients, four fifths of them for one app; more are refused with"
                + " 503 and come again. HTTP_MAX_CONNECTIONS counts them, too"
        )
        static let realmSocketsOfAddress = Setting<Int>(
            "INGEST_REALM_MAX_SOCKETS_PER_ADDRESS",
            in: 0...1_000_000,
            default: 1000,
            "open WebSockets of Realm clients from one address, 0: no limit; phones behind one"
                + " gateway share one"
        )

        static let all: [SettingEntry] = [
            groupID.entry, sink.entry, keyRetention.entry, pushRetention.entry,
            maximumHeldBytes.entry, realmHeldBytes.entry, realmSockets.entry,
            realmSocketsOfAddress.entry,
        ]
    }
}
