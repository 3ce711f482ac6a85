package import JSON
import Postgres
package import PushCore
import PushStorage
import Storage

/// All stored data of a subject.
package struct SubjectExport: Sendable {
    /// The lists in display order. An erasure deletes or rewrites the same rows (`Personal`).
    package enum List: String, CaseIterable, Sendable {
        case installations, configFetches
        /// At most one identity.
        case identities
        /// Secure payloads, without their content.
        case securePayloads
        /// Devices that read by a secret of their own.
        case secureReaders
        /// Whether the identity has a secret itself.
        case secureSecrets
        /// Datasets with their records, and devices with the datasets that they subscribed to.
        case syncDatasets, syncDevices
        /// Messages that wait for its devices' connections.
        case connectionMessages
        case ingestObjects, pushReceipts, deliveries, pushes, auditEntries
    }

    private var lists: [List: [JSONValue]] = [:]

    package internal(set) subscript(list: List) -> [JSONValue] {
        get { lists[list] ?? [] }
        set { lists[list] = newValue }
    }

    /// Whether the audit shows that a request about the subject succeeded. An entry alone does not
    /// show it: any caller that names an id leaves one, and the entry of a batch has no outcomes of
    /// its items.
    package var wasDealtWith = false
    /// Whether something exceeds `ErasureStore.exportLimit`, or pushes and deliveries exceed
    /// `ErasureStore.exportBytes`.
    package var isTruncated = false

    package var isEmpty: Bool {
        // These lists alone do not show that the subject exists.
        let minor: [List] = [.configFetches, .secureReaders, .auditEntries]
        return List.allCases.allSatisfy { self[$0].isEmpty || minor.contains($0) } && !wasDealtWith
    }

    package var counts: JSONObject {
        JSONObject(List.allCases.map { ($0.rawValue, JSONValue(self[$0].count)) })
    }

    package func json(of subject: Subject, at time: Instant) -> JSONObject {
        var object: JSONObject = [
            "app": .string(subject.app), "kind": .string(subject.kind.rawValue),
            "id": .string(subject.id), "exportedAt": .string(time.iso8601),
        ]
        for list in List.allCases {
            switch list {
            case .identities: object["identity"] = self[list].first ?? .null
            default: object[list.rawValue] = .array(self[list])
            }
        }
        object["truncated"] = .bool(isTruncated)
        return object
    }
}

extension ErasureStore {
    /// The limit of deliveries, pushes and audit entries of one export, each.
    package static let exportLimit = 10_000
    /// The limit of pushes and deliveries of one export, as text.
    package static let exportBytes = 16 << 20
    /// The number of pushes per read, as their sizes are known only then.
    private static let pushesAtOnce = 50
    private static let objectsAtOnce = 500

    /// Reads the stored data of a subject: its installations and identity, its deliveries within
    /// their retention, the pushes that name it, and its entries in the audit.
    package func export(_ subject: Subject) async throws -> SubjectExport {
        var export = SubjectExport()
        let (names, installations) = try await database.transaction { transaction in
            try await SubjectSearch.resolve(subject, isLocking: false, transaction)
        }
        export[.installations] = installations.map { Self.shown($0) }
        let values = PersonalValues(subject, installations, names: names)
        export = try await database.transaction { [export] transaction in
            var export = export
            try await IndexPlan.require(transaction)
            for personal in Personal.first + Personal.secure + Personal.reports {
                try await personal.export(values, into: &export, transaction)
            }
            return export
        }
        try await exportObjects(values, into: &export)
        try await exportPushes(subject, names, into: &export)
        try await exportAudit(subject, names, into: &export)
        return export
    }

    /// Adds objects that devices have sent, in their stored form, the oldest of each type first.
    private func exportObjects(
        _ values: PersonalValues,
        into export: inout SubjectExport
    ) async throws {
        var left = Self.exportBytes
        for type in try await Personal.ingestTypes(of: values.subject.app, in: database) {
            var last: (at: Int64, id: String) = (0, "")
            var count = Self.objectsAtOnce
            while count == Self.objectsAtOnce {
                let after = last
                let page = try await database.transaction { transaction in
                    try await IndexPlan.require(transaction)
                    return try await type.objects.objects(
                        after: after,
                        limit: Self.objectsAtOnce,
                        values,
                        transaction
                    )
                }
                for row in page {
                    let object = try row.json("object")
                    left -= object.bytes.count
                    guard left >= 0, export[.ingestObjects].count < Self.exportLimit else {
                        export.isTruncated = true
                        return
                    }
                    export[.ingestObjects].append([
                        "type": .string(type.name),
                        "receivedAt": .string(try row.instant("received_at").iso8601),
                        "schemaVersion": JSONValue(try row.integer("schema_version")),
                        "object": object,
                    ])
                    last = (try row.timestampMicroseconds("received_at"), try row.text("id"))
                }
                count = page.count
            }
        }
    }

    private func exportAudit(
        _ subject: Subject,
        _ names: SubjectNames,
        into export: inout SubjectExport
    ) async throws {
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
            export[.auditEntries].append(.object(entry.json))
            let isServed = entry.status < 400 && entry.detail["items"] == nil
            if isServed { export.wasDealtWith = true }
        }
        if entries.count == Self.exportLimit { export.isTruncated = true }
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
            // Pushes that reached only the subject are shown, however they were addressed.
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
                    export[.pushes].append(push)
                }
            }
            for delivery in received {
                bytes += delivery.bytes.count
                guard bytes <= Self.exportBytes else {
                    export.isTruncated = true
                    return
                }
                export[.deliveries].append(delivery)
            }
            guard max(export[.pushes].count, export[.deliveries].count) <= Self.exportLimit else {
                export[.pushes] = Array(export[.pushes].prefix(Self.exportLimit))
                export[.deliveries] = Array(export[.deliveries].prefix(Self.exportLimit))
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
            // The id with which it was sent, from `NotificationIDs`: chunks do not store it.
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
