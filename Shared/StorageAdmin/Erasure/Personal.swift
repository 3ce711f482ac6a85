import IngestStorage
import JSON
import PushCore
import Storage

/// One kind of personal rows: the condition for a subject's rows, and their treatment by an erasure, its
/// dry run and an export.
///
/// The lists below contain all that an erasure deletes, in its order: `first`, `secure`, `ingestObjects`,
/// `reports`; and in `rewritten` the rows that stay without a name. A test compares them with the schema: a
/// new table is added here, or to that test's exceptions with a reason.
struct Personal: Sendable {
    enum Erasure: Sendable {
        /// Deletes the rows in the first transaction of an erasure.
        ///
        /// - names: A column whose values also name the subject.
        case delete(names: String? = nil)
        /// Deletes the rows that existed when the erasure began, in transactions of this size.
        ///
        /// - time: SQL that is true if the row existed then.
        /// - key: The columns of a row's key, in whose order rows are locked; `nil`: without locks, as
        ///   the rows never change.
        case deleteBatches(of: Int, time: String, key: String? = nil)
        /// Sets columns, while `SubjectRows` walks through the app's pushes: the rows stay without a name.
        case set(String)
        /// Removes the names from the rows; rows that are meaningless without them are deleted (`SubjectRows`).
        case redact
    }

    /// The name of the rows' counter in receipts and dry runs; `nil`: they are not counted.
    let count: String?
    let table: String
    /// SQL for the rows `t` of the table that belong to the subject. A row may match several of
    /// these conditions.
    let rows: [String]
    let erasure: Erasure
    let export: Export?

    private init(
        _ count: String?,
        _ table: String,
        from: String? = nil,
        _ conditions: [String] = [],
        erasure: Erasure = .delete(),
        export: Export? = nil
    ) {
        self.count = count
        self.table = table
        rows = conditions.map { "FROM \(from ?? "\(table) t") WHERE \($0)" }
        self.erasure = erasure
        self.export = export
    }

    /// The values of a subject, which each statement has (`PersonalValues`). The identity is null if the
    /// subject is an installation.
    private static let ofApp = "t.app = $1"
    private static let isInstallation = "= ANY ($2::text[])"
    private static let isIdentity = "= $3"
    private static let isObjectID = "= ANY ($4::text[])"
    private static let names = "$5::text[]"
    private static let until = "$6"

    private static let ofInstallation = "\(ofApp) AND t.installation \(isInstallation)"
    private static let ofIdentity = "\(ofApp) AND t.identity \(isIdentity)"

    // MARK: Deleted first

    private static let pools = "SELECT p.id FROM sync_pools p WHERE p.app = $1"
    private static let poolName = "(SELECT p.name FROM sync_pools p WHERE p.id = t.pool)"
    private static let ofDataset = "t.identity \(isIdentity) AND t.pool IN (\(pools))"
    private static let datasets = "SELECT t.id FROM sync_datasets t WHERE \(ofDataset)"
    /// The rows of a device, whatever identity registered it; the rows of an identity in all pools.
    private static let ofDevice = "\(ofApp) AND (t.installation \(isInstallation) OR \(ofDataset))"
    private static let devices = "SELECT t.id FROM sync_devices t WHERE \(ofDevice)"

    /// All rows that identify the subject. They are deleted in the transaction that stores its
    /// names, so that no later planning or read finds the subject. A row is deleted before the rows
    /// that it refers to, as a cascade would delete it without counting it.
    static let first = [
        Personal(
            "configFetches",
            "config_fetched",
            [ofInstallation],
            export: Export(
                .configFetches,
                [
                    .text("objectId", "t.installation"), .integer("version", "t.version"),
                    .instant("fetchedAt", "t.fetched_at"),
                ]
            )
        ),
        // Without its own secret and the secrets of its devices, the subject can read nothing more.
        Personal(
            "secureReaders",
            "secure_readers",
            [ofInstallation],
            export: Export(
                .secureReaders,
                [
                    .text("objectId", "t.installation"),
                    .boolean("hasSealingKey", "t.sealing_key IS NOT NULL"),
                    .instant("createdAt", "t.created_at"),
                ]
            )
        ),
        Personal(
            "secureSecrets",
            "identity_secrets",
            [ofIdentity],
            export: Export(.secureSecrets, [.instant("setAt", "t.updated_at")])
        ),
        Personal("syncRecords", "sync_records", ["t.dataset IN (\(datasets))"]),
        Personal(
            "syncSubscriptions",
            "sync_subscriptions",
            ["t.dataset IN (\(datasets))", "t.device IN (\(devices))"]
        ),
        Personal(
            "syncDatasets",
            "sync_datasets",
            [ofDataset],
            export: Export(
                .syncDatasets,
                [
                    .text("identityPoolId", poolName), .text("datasetName", "t.name"),
                    .integer("syncCount", "t.sync_count"), .instant("createdAt", "t.created_at"),
                    .instant("updatedAt", "t.modified_at"),
                    .json(
                        "records",
                        """
                        coalesce((SELECT json_agg(json_build_object('key', r.key, 'value', r.value,
                                'syncCount', r.sync_count) ORDER BY r.sync_count, r.key)
                            FROM sync_records r WHERE r.dataset = t.id), '[]')
                        """
                    ),
                ],
                order: "1, t.name"
            )
        ),
        Personal(
            "syncDevices",
            "sync_devices",
            [ofDevice],
            erasure: .delete(names: "device_id"),
            export: Export(
                .syncDevices,
                [
                    .text("identityPoolId", poolName), .text("identityId", "t.identity"),
                    .text("deviceId", "t.device_id"), .text("platform", "t.platform"),
                    .text("installation", "t.installation"),
                    .instant("registeredAt", "t.registered_at"),
                    .json(
                        "subscriptions",
                        """
                        coalesce((SELECT json_agg(json_build_object('datasetName', d.name,
                                'told', s.told) ORDER BY d.name) FROM sync_subscriptions s
                            JOIN sync_datasets d ON d.id = s.dataset WHERE s.device = t.id), '[]')
                        """
                    ),
                ],
                order: "1, t.device_id"
            )
        ),
        // The name that people of the app gave the subject's device in the console.
        Personal(nil, "test_devices", [ofInstallation]),
        // An export shows the installations that `SubjectSearch.resolve` has found.
        Personal("installations", "installations", ["\(ofApp) AND t.object_id \(isInstallation)"]),
        // Messages that wait for the subject's devices. Once the installations are deleted, all
        // messages that were being stored are committed, and are found here.
        Personal(
            "connectionMessages",
            "connection_messages",
            ["\(ofApp) AND t.target \(isInstallation)"],
            export: Export(
                .connectionMessages,
                [
                    .text("objectId", "t.target"), .text("id", "t.id::text"),
                    .json(
                        "data",
                        """
                        (SELECT convert_from(c.body, 'UTF8')::json FROM connection_contents c
                            WHERE c.id = t.content)
                        """
                    ),
                    .instant("storedAt", "t.stored_at"), .instant("expiresAt", "t.expires_at"),
                ],
                order: "t.seq",
                isLimited: true
            )
        ),
        // Drafts of pushes that name the subject. An app has at most 1,000 drafts.
        Personal(
            nil,
            "push_drafts",
            [
                """
                \(ofApp) AND EXISTS (SELECT FROM jsonb_each_text(t.form) AS f, unnest(\(names)) AS n
                    WHERE strpos(f.value, n) > 0)
                """
            ]
        ),
        // Filters of the console's lists that name the subject. An app has at most 100.
        Personal(
            nil,
            "saved_filters",
            [
                """
                \(ofApp) AND EXISTS (SELECT FROM unnest(\(names)) AS n
                    WHERE strpos(t.name, n) > 0 OR EXISTS (
                        SELECT FROM jsonb_each_text(t.filter) AS f WHERE strpos(f.value, n) > 0))
                """
            ]
        ),
        Personal(
            "identities",
            "identities",
            ["\(ofApp) AND t.id \(isIdentity)"],
            export: Export(
                .identities,
                [
                    .fields("t.fields"), .text("objectId", "t.id"),
                    .instant("createdAt", "t.created_at"), .instant("updatedAt", "t.updated_at"),
                ]
            )
        ),
    ]

    // MARK: Deleted in batches

    /// Sealed copies of other identities' payloads. Copies of the subject's own payloads are
    /// deleted with these.
    private static let sealed = "secure_sealed t JOIN secure_payloads p ON p.id = t.payload"
    private static let ofSealed = """
        \(ofApp) AND t.installation \(isObjectID) AND p.identity IS DISTINCT FROM $3
        """
    /// A payload may have 64 KiB, and a copy for each device.
    private static let payloadsAtOnce = 200

    /// Contents, the first of the remaining rows to be deleted. An erasure searches for them again
    /// at its end: a payload that was being stored when the subject was deleted was not visible
    /// then.
    static let secure = [
        Personal(
            "securePayloads",
            "secure_payloads",
            [ofIdentity],
            erasure: .deleteBatches(
                of: payloadsAtOnce,
                time: "t.created_at <= \(until)",
                key: "created_at, id"
            ),
            export: Export(payloads: "SELECT t.id FROM secure_payloads t WHERE \(ofIdentity)")
        ),
        // A backend chose the key, which may contain the identity's name.
        Personal(
            nil,
            "secure_keys",
            [ofIdentity],
            erasure: .deleteBatches(of: 1000, time: "t.created_at <= \(until)", key: "app, key")
        ),
        // An identity's export shows only its own payloads.
        Personal(
            "securePayloads",
            "secure_sealed",
            from: sealed,
            [ofSealed],
            erasure: .deleteBatches(
                of: payloadsAtOnce,
                time: "p.created_at <= \(until)",
                key: "payload, installation"
            ),
            export: Export(
                payloads: "SELECT t.payload FROM \(sealed) WHERE \(ofSealed) AND $3 IS NULL"
            )
        ),
        // An identity that reads without a device is recorded with an empty one.
        Personal(
            nil,
            "secure_reads",
            ["\(ofApp) AND t.installation \(isObjectID) AND t.installation <> ''"],
            erasure: .deleteBatches(
                of: 1000,
                time: "t.read_at <= \(until)",
                key: "payload, installation"
            )
        ),
    ]

    private static let reportsAtOnce = 2000

    /// The reports of installations on pushes.
    static let reports = [
        Personal(
            "pushReceipts",
            "push_receipts",
            ["\(ofApp) AND t.who = ANY (\(names))"],
            erasure: .deleteBatches(of: reportsAtOnce, time: "t.at <= \(until)"),
            export: Export(
                .pushReceipts,
                [
                    .text("push", "t.target"),
                    .text(
                        "kind",
                        """
                        CASE t.kind WHEN \(ReceiptKind.opened.rawValue) THEN 'opened'
                            ELSE 'received' END
                        """
                    ),
                    .text("installation", "t.who"), .instant("at", "t.at"),
                ],
                order: "t.at, t.target, t.kind",
                isLimited: true
            )
        )
    ]

    /// Returns the objects of one type that devices have sent, by the properties that name their
    /// subject. The ids of objects stay stored, so that no object is stored again. The fence stops
    /// later objects. An export reads them in pages (`ErasureStore.exportObjects`).
    static func ingestObjects(_ table: IngestTable, by subjects: [String]) -> Personal {
        Personal(
            "ingestObjects",
            table.name,
            // Postgres uses the indexes of `IngestTable.indexes` only for this form.
            from: "unnest(\(names)) AS n(name) CROSS JOIN \(table.name) t",
            subjects.map { subject in
                let value = "t.object->>\(quotedLiteral(subject))"
                return "\(value) = n.name AND \(value) IS NOT NULL AND \(ofApp)"
            },
            erasure: .deleteBatches(
                of: reportsAtOnce,
                time: "t.received_at < \(until)::timestamptz + \(ErasureFence.clockDifference)"
            )
        )
    }

    // MARK: Rewritten

    /// SQL that clears the columns of a delivery that identify its device. The row still shows that
    /// a notification was sent, and its outcome.
    static let deliveries = """
        target = 'erased-' || gen_random_uuid(), installation_id = NULL, token = '', locale = NULL,
        apns_topic = NULL, template_values = NULL, badge = NULL, provider_message_id = NULL
        """
    /// SQL that clears the object ids at which a finished shard began and ended. They are not read
    /// any more.
    static let shards = "lower_id = '', upper_id = NULL, cursor = NULL, prepared = NULL"

    /// Rows that stay: the ledgers of pushes must balance, and the content for others stays. Exports of
    /// pushes and the audit are `ErasureStore.exportPushes` and `exportAudit`.
    static let rewritten = [
        // `endedDeliveries` counts those that were pending.
        Personal("deliveries", "deliveries", erasure: .set(deliveries)),
        // A target becomes null (`DeliveryChunks.erase`).
        Personal("deliveries", "delivery_chunks", erasure: .redact),
        // Unpacked into rows of `pushes` and `deliveries` first (`EventPushes.unpack`).
        Personal(nil, "event_pushes", erasure: .redact),
        // The request, the event's id and the notes; the whole content if the push was only for the subject.
        Personal("pushes", "pushes", erasure: .redact),
        // Deleted if the push was only for the subject; else it is the content of others, too.
        Personal(nil, "connection_contents", erasure: .redact),
        // Keys of events whose id contains a name.
        Personal("eventKeys", "event_keys", erasure: .redact),
        Personal("shards", "shards", erasure: .set(shards)),
        // Records that were not produced to Kafka yet.
        Personal("outboxRecords", "outbox", erasure: .redact),
        Personal("auditEntries", "audit", erasure: .redact),
    ]
}
