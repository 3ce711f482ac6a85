package import JSON
import Postgres
package import PushCore

/// Everything that is stored of a subject.
package struct SubjectExport: Sendable {
    package var installations: [JSONValue] = []
    /// Which version of the app's remote config each of the installations was given last.
    package var configFetches: [JSONValue] = []
    package var identity: JSONValue?
    /// Secure payloads that are kept for it, without their content; which of its devices read by a
    /// secret of their own; that it has a secret itself.
    package var securePayloads: [JSONValue] = []
    package var secureReaders: [JSONValue] = []
    package var secureSecrets: [JSONValue] = []
    /// Its datasets with their records, and its devices with what they want to hear of.
    package var syncDatasets: [JSONValue] = []
    package var syncDevices: [JSONValue] = []
    /// What devices have sent that is about it, and what its installations have reported of pushes.
    package var ingestObjects: [JSONValue] = []
    package var pushReceipts: [JSONValue] = []
    package var deliveries: [JSONValue] = []
    package var pushes: [JSONValue] = []
    package var auditEntries: [JSONValue] = []
    /// Whether the audit says that somebody was served with it, not only that he asked: whoever names
    /// an id leaves that much of it, alone or in a batch, which does not tell how its items ended.
    package var wasDealtWith = false
    /// There is more than `Erasures.exportLimit` of something, or more than
    /// `Erasures.exportBytes` of pushes and deliveries.
    package var isTruncated = false

    package var isEmpty: Bool {
        installations.isEmpty && identity == nil && deliveries.isEmpty && pushes.isEmpty
            && securePayloads.isEmpty && secureSecrets.isEmpty && syncDatasets.isEmpty
            && syncDevices.isEmpty && ingestObjects.isEmpty && pushReceipts.isEmpty && !wasDealtWith
    }

    package var counts: JSONObject {
        [
            "installations": JSONValue(installations.count),
            "configFetches": JSONValue(configFetches.count),
            "identities": JSONValue(identity == nil ? 0 : 1),
            "securePayloads": JSONValue(securePayloads.count),
            "secureReaders": JSONValue(secureReaders.count),
            "secureSecrets": JSONValue(secureSecrets.count),
            "syncDatasets": JSONValue(syncDatasets.count),
            "syncDevices": JSONValue(syncDevices.count),
            "ingestObjects": JSONValue(ingestObjects.count),
            "pushReceipts": JSONValue(pushReceipts.count),
            "deliveries": JSONValue(deliveries.count), "pushes": JSONValue(pushes.count),
            "auditEntries": JSONValue(auditEntries.count),
        ]
    }

    package func json(of subject: Subject, at time: Instant) -> JSONObject {
        [
            "app": .string(subject.app), "kind": .string(subject.kind.rawValue),
            "id": .string(subject.id), "exportedAt": .string(time.iso8601),
            "installations": .array(installations), "configFetches": .array(configFetches),
            "identity": identity ?? .null, "securePayloads": .array(securePayloads),
            "secureReaders": .array(secureReaders), "secureSecrets": .array(secureSecrets),
            "syncDatasets": .array(syncDatasets), "syncDevices": .array(syncDevices),
            "ingestObjects": .array(ingestObjects), "pushReceipts": .array(pushReceipts),
            "deliveries": .array(deliveries), "pushes": .array(pushes),
            "auditEntries": .array(auditEntries), "truncated": .bool(isTruncated),
        ]
    }
}

extension Erasures {
    /// Deliveries, pushes and audit entries of one export, each.
    package static let exportLimit = 10_000
    /// Pushes and deliveries of one export, as text.
    package static let exportBytes = 16 << 20
    /// Pushes that are read at once, as what they come to is known only then.
    private static let pushesAtOnce = 50

    /// Reads what is stored of a subject: its installations and identity, its deliveries for as long
    /// as these are kept, the pushes that name it, and what the audit says of it.
    package func export(_ subject: Subject) async throws -> SubjectExport {
        var export = SubjectExport()
        let (names, installations) = try await database.transaction { transaction in
            try await SubjectSearch.resolve(subject, isLocking: false, transaction)
        }
        export.installations = installations.map { Self.shown($0) }
        export.configFetches = try await fetches(of: installations, subject)
        try await SubjectSync.export(
            subject,
            installations: installations.map(\.objectID),
            into: &export,
            database
        )
        if subject.kind == .identity {
            export.identity = try await database.execute(
                """
                SELECT id, fields, created_at, updated_at FROM identities
                WHERE app = $1 AND id = $2
                """,
                [.text(subject.app), .text(subject.id)]
            ).first.map(Self.shownIdentity)
        }
        try await SubjectSecure.export(
            of: subject,
            installations,
            limit: Self.exportLimit,
            into: &export,
            in: database
        )
        try await SubjectIngest.export(
            of: subject,
            names,
            limit: Self.exportLimit,
            bytes: Self.exportBytes,
            into: &export,
            database
        )
        try await exportPushes(subject, names, into: &export)
        let entries = try await database.execute(
            """
            SELECT \(AuditStore.columns) FROM audit WHERE app = $1 AND targets && $2::text[]
            ORDER BY at DESC, id DESC LIMIT $3
            """,
            [
                .text(subject.app), .textArray(names.texts.sorted()), .integer(Self.exportLimit),
            ]
        ).rows
        for entry in try entries.map(AuditStore.entry) {
            export.auditEntries.append(.object(entry.json))
            let isServed = entry.status < 400 && entry.detail["items"] == nil
            if isServed { export.wasDealtWith = true }
        }
        if entries.count == Self.exportLimit { export.isTruncated = true }
        return export
    }

    /// What fetches of remote config noted of the subject's installations.
    func fetches(
        of installations: [Installation],
        _ subject: Subject
    ) async throws -> [JSONValue] {
        try await database.execute(
            """
            SELECT installation, version, fetched_at FROM config_fetched
            WHERE app = $1 AND installation = ANY ($2::text[]) ORDER BY installation
            """,
            [.text(subject.app), .textArray(installations.map(\.objectID))]
        ).rows.map { row in
            [
                "objectId": .string(try row.text("installation")),
                "version": JSONValue(try row.integer("version")),
                "fetchedAt": .string(try row.instant("fetched_at").iso8601),
            ]
        }
    }

    private func exportPushes(
        _ subject: Subject,
        _ names: SubjectNames,
        into export: inout SubjectExport
    ) async throws {
        var cursor: (Int64?, String?) = (nil, nil)
        var bytes = 0
        while true {
            let after = cursor
            let page = try await database.transaction { transaction in
                try await IndexPlan.require(transaction)
                return try await SubjectSearch.page(
                    of: subject.app,
                    names,
                    after: after,
                    transaction
                )
            }
            guard let last = page.last else { return }
            cursor = (last.0, last.1)
            let delivered = page.ids.filter(page.delivered.contains)
            let received = try await deliveries(of: delivered, names)
            // What reached nobody else is the subject's, whatever it was addressed by.
            let sole = try await SolePush.onlyTargets(
                received.reduce(into: [:]) { counts, delivery in
                    counts[delivery["pushId"]?.string ?? "", default: 0] += 1
                },
                in: database
            )
            let named = page.ids.filter { page.named.contains($0) || sole.contains($0) }
            for start in stride(from: 0, to: named.count, by: Self.pushesAtOnce) {
                let some = named[start..<min(start + Self.pushesAtOnce, named.count)]
                let pushes = try await PushStore(database: database).find(Set(some))
                for id in some {
                    guard let push = pushes[id].map(Self.shown) else { continue }
                    bytes += push.bytes.count
                    guard bytes <= Self.exportBytes else {
                        export.isTruncated = true
                        return
                    }
                    export.pushes.append(push)
                }
            }
            for delivery in received {
                bytes += delivery.bytes.count
                guard bytes <= Self.exportBytes else {
                    export.isTruncated = true
                    return
                }
                export.deliveries.append(delivery)
            }
            guard max(export.pushes.count, export.deliveries.count) <= Self.exportLimit else {
                export.pushes = Array(export.pushes.prefix(Self.exportLimit))
                export.deliveries = Array(export.deliveries.prefix(Self.exportLimit))
                export.isTruncated = true
                return
            }
            guard page.isFull else { return }
        }
    }

    private func deliveries(
        of pushIDs: [String],
        _ names: SubjectNames
    ) async throws -> [JSONValue] {
        guard !pushIDs.isEmpty else { return [] }
        return try await database.execute(
            """
            SELECT d.push_id, d.installation_id, d.provider, d.environment, d.token, d.locale,
                d.apns_topic, d.state, d.attempts, d.last_status, d.last_reason,
                d.provider_message_id, d.template_values, d.badge, d.created_at, d.updated_at,
                sha256(convert_to('delivery', 'UTF8') || '\\x00' || convert_to(d.push_id::text, 'UTF8')
                    || '\\x00' || convert_to(d.target, 'UTF8')) AS digest
            FROM all_pushes p CROSS JOIN unnest($2::text[]) AS t(target) CROSS JOIN LATERAL (
                SELECT * FROM all_deliveries d WHERE d.day = (p.created_at AT TIME ZONE 'UTC')::date
                    AND d.push_id = p.id AND d.first_id <= t.target AND d.last_id >= t.target
                    AND d.target = t.target OFFSET 0) d
            WHERE p.id = ANY ($1::uuid[]) ORDER BY d.created_at, d.push_id, d.target
            """,
            [.uuidArray(pushIDs.sorted()), .textArray(names.targets)]
        ).rows.map(Self.shownDelivery)
    }

    private static func shown(_ installation: Installation) -> JSONValue {
        var object = installation.object
        object["objectId"] = .string(installation.objectID)
        object["createdAt"] = .string(installation.createdAt.iso8601)
        object["updatedAt"] = .string(installation.updatedAt.iso8601)
        if let reason = installation.invalidReason { object["invalidReason"] = .string(reason) }
        return .object(object)
    }

    private static func shownIdentity(_ row: PostgresRow) throws -> JSONValue {
        var object = try row.json("fields").object ?? [:]
        object["objectId"] = .string(try row.text("id"))
        object["createdAt"] = .string(try row.instant("created_at").iso8601)
        object["updatedAt"] = .string(try row.instant("updated_at").iso8601)
        return .object(object)
    }

    private static func shown(_ push: StoredPush) -> JSONValue {
        [
            "pushId": .string(push.id), "eventId": .string(push.eventID),
            "status": .string(push.status.rawValue),
            "createdAt": .string(push.createdAt.iso8601), "request": .object(push.request),
        ]
    }

    private static func shownDelivery(_ row: PostgresRow) throws -> JSONValue {
        let state = DeliveryState(rawValue: try row.integer("state")) ?? .pending
        var object: JSONObject = [
            "pushId": .string(try row.uuid("push_id")),
            "provider": .string(try row.text("provider")),
            "environment": .string(try row.text("environment")),
            "outcome": .string(state.outcome?.rawValue ?? "pending"),
            "attempts": JSONValue(try row.integer("attempts")),
            "createdAt": .string(try row.instant("created_at").iso8601),
            "updatedAt": .string(try row.instant("updated_at").iso8601),
        ]
        let installationID = try row.textOrNil("installation_id")
        var messageID = try row.textOrNil("provider_message_id")
        if messageID == nil, state == .delivered, installationID != nil,
            try row.text("provider") == Platform.apns.rawValue
        {
            // What it was sent with, as `NotificationIDs` makes it: chunks do not keep it.
            messageID = PushIdentity.uuidText(try row.bytes("digest"))
        }
        for (key, value) in [
            ("installationId", installationID),
            ("token", try row.textOrNil("token").flatMap { $0.isEmpty ? nil : $0 }),
            ("locale", try row.textOrNil("locale")),
            ("apnsTopic", try row.textOrNil("apns_topic")),
            ("reason", try row.textOrNil("last_reason")),
            ("providerMessageId", messageID),
        ] {
            if let value { object[key] = .string(value) }
        }
        if let status = try row.integerOrNil("last_status") { object["status"] = JSONValue(status) }
        if let badge = try row.integerOrNil("badge") { object["badge"] = JSONValue(badge) }
        object["values"] = try row.jsonOrNil("template_values")
        return .object(object)
    }
}

extension AuditEntry {
    package var json: JSONObject {
        var object: JSONObject = [
            "at": .string(at.iso8601), "app": .string(app), "actor": .string(actor),
            "action": .string(action), "targets": .array(targets.map(JSONValue.string)),
            "status": JSONValue(status),
        ]
        if let address { object["address"] = .string(address) }
        if !detail.isEmpty { object["detail"] = .object(detail) }
        return object
    }
}
