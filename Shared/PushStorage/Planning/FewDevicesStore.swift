import Cryptography
import InstallationStorage
import JSON
import Postgres
import PushCore
package import Storage

/// The pushes of the fast path (`NewPush.isForFewDevices`). They are looked up in one round trip
/// for the batch and sent. Then one transaction for the batch stores them with their ends
/// (`FewDevicesStore+Writing`).
///
/// Between look-up and write, Postgres has nothing of a push, except the row of a push that HTTP
/// accepted. The write locks the push's id, and checks again whether the push exists.
package struct FewDevicesStore: Sendable {
    /// The database whose connections use `IndexPlan`.
    let database: Database
    /// The database for finding devices by a field. The index of fields needs bitmap scans, which
    /// are switched off on the fast path's connections.
    let others: Database

    /// Finds which pushes are new, and their devices.
    ///
    /// - Parameters:
    ///   - pushes: The pushes, each `isForFewDevices`, and each once.
    ///   - retention: How long an event is recognised as a duplicate.
    /// - Returns: The results, in the order of the pushes.
    /// - Throws: `StorageError`.
    package func lookUp(
        _ pushes: [NewPush],
        _ retention: Retention = Retention()
    ) async throws -> [LookedUpPush] {
        guard !pushes.isEmpty else { return [] }
        let lookBack = Int64(DayTable.eventPushes.days(retention))
        let audience = BatchAudience(pushes)
        var day = database.clock.now()
        while true {
            let days = EventDays(from: day, back: lookBack, to: day)
            let known = (Self.knownSQL(days), [PostgresValue.uuidArray(pushes.map(\.id))])
            var results = try await database.execute([known] + audience.statements)
            let found = try KnownEvents(results[0])
            // The times in a push's row count. They are not computed again.
            let pushes = pushes.map { push in
                guard let times = found.times[push.id] else { return push }
                return push.with(releaseAt: push.releaseAt, expiresAt: times.expiresAt)
            }
            // Postgres' clock decides the day, not this machine's.
            guard found.now.day == day.day else {
                day = found.now
                continue
            }
            let ofFields = try await lookUp(audience.ofFields)
            if let ofFields { results.append(ofFields) }
            return try audience.deliveries(results.dropFirst(), of: pushes, at: found.now)
                .enumerated()
                .map { place, deliveries in
                    let id = pushes[place].id
                    if found.isKnown[id] == true { return .known }
                    guard deliveries.count <= pushes[place].fastPathLimit,
                        found.times[id]?.releaseAt == nil,
                        ofFields != nil || !pushes[place].namesByField
                    else { return .many }
                    return .new(deliveries, at: found.now, hasRow: found.times[id] != nil)
                }
        }
    }

    /// Runs the statement for conditions on fields. A value that devices of many apps share may
    /// take too long. Then the push is planned, and the fast path does not wait.
    ///
    /// - Returns: `nil` if it took too long, or there is no statement.
    private func lookUp(
        _ statement: (sql: String, parameters: [PostgresValue])?
    ) async throws -> PostgresResult? {
        guard let statement else { return nil }
        do {
            return try await others.transaction(of: [
                (IndexPlan.sql, []),
                ("SELECT set_config('statement_timeout', '100ms', true)", []), statement,
            ]).last
        } catch let error as StorageError where error.isStatementTimeout {
            return nil
        }
    }

    // A push that HTTP accepted is not known until it is planned or cancelled. `now()` comes first:
    // the devices are read after it, so the write notices an erasure in between.
    private static func knownSQL(_ days: EventDays) -> String {
        """
        SELECT now() AS now, NULL::uuid AS id, NULL::boolean AS is_known,
            NULL::timestamptz AS release_at, NULL::timestamptz AS expires_at
        UNION ALL
        SELECT now(), e.id, true, NULL, NULL FROM event_pushes e
        WHERE e.id = ANY ($1::uuid[]) AND \(days.sql(of: "e"))
        UNION ALL
        SELECT now(), p.id, NOT (p.status = \(PushStatus.queued.sql)
            AND p.planned_until IS NULL), p.release_at, p.expires_at
        FROM pushes p WHERE p.id = ANY ($1::uuid[])
        """
    }
}

/// The days of `event_pushes` that a statement reads. They are literals in its SQL, so that the
/// plan contains only their partitions: with parameters it would lock and open all. The SQL changes
/// once a day.
struct EventDays {
    private static let length: Int64 = 86_400_000
    private let first: String
    private let last: String

    /// Creates the range from `back` days before `start` to the day after `end`.
    init(from start: Instant, back: Int64, to end: Instant) {
        first = start.adding(milliseconds: -back * Self.length).day
        last = end.adding(milliseconds: Self.length).day
    }

    /// - Returns: A condition of a row of the table.
    func sql(of row: String) -> String {
        "\(row).day >= '\(first)' AND \(row).day <= '\(last)'"
    }
}

/// The pushes of a batch that exist already.
private struct KnownEvents {
    /// Whether a push was planned or sent, by push; `false` if HTTP accepted it and its record has
    /// not come yet.
    private(set) var isKnown: [String: Bool] = [:]
    /// The times in the rows of pushes that HTTP accepted: when they are released, if they wait,
    /// and when they expire.
    private(set) var times: [String: (releaseAt: Instant?, expiresAt: Instant?)] = [:]
    /// Postgres' time.
    private(set) var now = Instant(milliseconds: 0)

    /// - Parameter result: The result of `FewDevicesStore.knownSQL`.
    /// - Throws: `PostgresError` if a column is missing or of another type.
    init(_ result: PostgresResult) throws {
        for row in result.rows {
            now = try row.instant("now")
            guard let id = try row.uuidOrNil("id") else { continue }
            isKnown[id] = try row.boolean("is_known") || isKnown[id] ?? false
            guard isKnown[id] == false else { continue }
            times[id] = (try row.instantOrNil("release_at"), try row.instantOrNil("expires_at"))
        }
    }
}

/// The names in the pushes of a batch, and the statements that find their devices.
struct BatchAudience {
    private struct Names {
        /// The index in the batch of each name's push.
        var places: [Int] = []
        var apps: [String?] = []
        var names: [String?] = []
        var templates: [String?] = []

        mutating func add(_ list: [String], of push: NewPush, at place: Int) {
            let template = TemplateValues.joined(push.request)
            for name in list {
                places.append(place)
                apps.append(push.app)
                names.append(name)
                templates.append(template)
            }
        }
    }

    private var installations = Names()
    private var identities = Names()
    /// The names in conditions.
    private var objectIDs = Names()
    private var installationIDs = Names()
    private var fields = Names()

    init(_ pushes: [NewPush]) {
        for (place, push) in pushes.enumerated() {
            guard case .installations(let selectors) = push.request.audience,
                !selectors.selectsNothing
            else { continue }
            installations.add(selectors.installations ?? [], of: push, at: place)
            identities.add(selectors.identities ?? [], of: push, at: place)
            if let named = push.namedDevices { add(named, of: push, at: place) }
        }
    }

    private mutating func add(_ named: NamedDevices, of push: NewPush, at place: Int) {
        switch named.field {
        case .objectID: objectIDs.add(named.names, of: push, at: place)
        case .installationID: installationIDs.add(named.names, of: push, at: place)
        case .deviceToken, .owner, .user:
            // The field contains the value, or an array with the value.
            let held = named.values.flatMap { [$0.json, .array([$0.json])] }
            fields.add(
                held.map { JSONValue.object([named.field.rawValue: $0]).text },
                of: push,
                at: place
            )
        }
    }

    private var lists: [(names: Names, source: String)] {
        [
            (installations, Self.byInstallation), (identities, Self.byIdentity),
            (objectIDs, Self.byCondition("m.object_id = w.name")),
            (installationIDs, Self.byCondition("m.installation_id = w.name")),
        ].filter { !$0.0.places.isEmpty }
    }

    var statements: [(sql: String, parameters: [PostgresValue])] {
        lists.map { Self.statement($0.names, from: $0.source) }
    }

    /// The statement for conditions on fields; `nil` if no push has one.
    var ofFields: (sql: String, parameters: [PostgresValue])? {
        fields.places.isEmpty ? nil : Self.statement(fields, from: Self.byFields)
    }

    private static func statement(
        _ names: Names,
        from source: String
    ) -> (sql: String, parameters: [PostgresValue]) {
        var parameters: [PostgresValue] = [.textArray(names.apps), .textArray(names.names)]
        let hasTemplates = names.templates.contains { $0 != nil }
        if hasTemplates { parameters.append(.textArray(names.templates)) }
        return (select(from: source, hasTemplates: hasTemplates), parameters)
    }

    private static func select(from source: String, hasTemplates: Bool) -> String {
        let values =
            hasTemplates
            ? TemplateValues.sql("string_to_array(w.template, ',')", of: "n") : "NULL::json"
        return """
            SELECT w.place, n.object_id, n.provider, n.environment, \(DirectRows.reach(of: "n")), n.locale,
                \(InstallationTopic.sql(of: "n")) AS apns_topic,
                \(values) AS template_values
            FROM unnest($1::text[], $2::text[]\(hasTemplates ? ", $3::text[]" : "")) WITH ORDINALITY
                AS w(app, name\(hasTemplates ? ", template" : ""), place)
            CROSS JOIN LATERAL (\(source)) n
            WHERE n.provider IS NOT NULL
            """
    }

    // Finds an installation by either of its ids. OFFSET 0 keeps the union, so that each id is
    // looked up by its index.
    private static let byInstallation = """
        SELECT * FROM installations m WHERE m.app = w.app AND m.object_id = w.name
        UNION ALL
        SELECT * FROM installations m WHERE m.app = w.app AND m.installation_id = w.name
        OFFSET 0
        """

    // Reads one more than `fewNames`, to notice that there are too many.
    private static let byIdentity = """
        SELECT * FROM installations m
        WHERE m.app = w.app AND m.identity = w.name AND m.valid AND m.token IS NOT NULL
        LIMIT \(NewPush.fewNames + 1)
        """

    // A condition selects only devices that can be sent to. If a push names a device itself, the
    // device is suppressed instead.
    private static let isSelected = "m.valid AND m.token IS NOT NULL AND NOT m.template_only"

    private static func byCondition(_ condition: String) -> String {
        "SELECT * FROM installations m WHERE m.app = w.app AND \(condition) AND \(isSelected)"
    }

    private static let byFields = """
        SELECT * FROM (SELECT * FROM installations f WHERE f.fields @> w.name::jsonb OFFSET 0) m
        WHERE m.app = w.app AND \(isSelected)
        LIMIT \(NewPush.fewNames + 1)
        """

    /// - Parameters:
    ///   - results: The results of `statements` and of `ofFields`.
    ///   - pushes: The batch.
    ///   - now: The time of the look-up. Installations created later are not members.
    /// - Returns: The deliveries of each push. Each device is there once.
    /// - Throws: `StorageError` of kind `corrupt`; `PostgresError`.
    func deliveries(
        _ results: ArraySlice<PostgresResult>,
        of pushes: [NewPush],
        at now: Instant
    ) throws -> [[Delivery]] {
        let day = now.day
        var found = pushes.map { $0.deliveriesToTokens(at: now, day: day) }
        for (names, result) in zip(lists.map(\.names) + [fields], results) {
            for row in result.rows {
                let place = names.places[try row.integer("place") - 1]
                let delivery = try pushes[place].delivery(to: row, at: now, day: day)
                if found[place].contains(where: { $0.target == delivery.target }) { continue }
                found[place].append(delivery)
            }
        }
        return found
    }
}

extension NewPush {
    fileprivate func deliveriesToTokens(at now: Instant, day: String) -> [Delivery] {
        guard case .tokens(let tokens) = request.audience else { return [] }
        var seen: Set<String> = []
        return tokens.compactMap { token in
            let target = Hex.encode(sha256(Array(token.token.utf8)))
            guard seen.insert(target).inserted else { return nil }
            return delivery(
                DeliveryKey(day: day, pushID: id, target: target),
                DeviceTarget(
                    provider: token.platform,
                    token: token.token,
                    environment: environment(token.environment, at: token.platform),
                    environmentIsExplicit: token.environment != .none
                ),
                at: now
            )
        }
    }

    /// Returns the delivery to an installation. If the installation is named but cannot be sent to,
    /// the delivery has no token and is suppressed for the reason, so that the outcome reports it.
    fileprivate func delivery(
        to row: PostgresRow,
        at now: Instant,
        day: String
    ) throws -> Delivery {
        let name = try row.text("provider")
        guard let provider = Platform(rawValue: name) else {
            throw StorageError(.corrupt, "an installation is of the unknown provider \(name)")
        }
        let installation = try row.text("object_id")
        let own = PushEnvironment(rawValue: try row.text("environment")) ?? .none
        var delivery = delivery(
            DeliveryKey(day: day, pushID: id, target: installation),
            DeviceTarget(
                provider: provider,
                token: try row.text("token"),
                environment: environment(own, at: provider),
                environmentIsExplicit: own != .none
            ),
            at: now
        )
        delivery.installationID = installation
        delivery.locale = try row.textOrNil("locale")
        delivery.apnsTopic = try row.textOrNil("apns_topic")
        delivery.values = try row.jsonOrNil("template_values")?.object
        if let reason = try row.textOrNil("suppression") { delivery.suppression = reason }
        return delivery
    }

    /// Returns the environment of a delivery: if a device does not name its APNs environment, the
    /// push's `prod` decides.
    private func environment(_ own: PushEnvironment, at provider: Platform) -> PushEnvironment {
        own == .none && provider == .apns ? request.environment : own
    }

    private func delivery(
        _ key: DeliveryKey,
        _ device: DeviceTarget,
        at now: Instant
    ) -> Delivery {
        Delivery(
            key: key,
            app: app,
            installationID: nil,
            device: device,
            locale: nil,
            apnsTopic: nil,
            lane: 0,
            attempts: 0,
            unanswered: 0,
            expiresAt: expiresAt,
            createdAt: now,
            suppression: device.token.isEmpty ? "no token" : nil,
            values: nil,
            badge: nil
        )
    }
}
