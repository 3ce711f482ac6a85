import ConnectionStorage
import Cryptography
import InstallationStorage
import JSON
import Postgres
import PushCore
package import PushStorage
import Storage

/// Gathers the facts for explanations.
///
/// It runs about ten statements, each by the key of one push or one device, or by an index with a
/// limit. So its cost depends neither on the number of devices nor on the number of pushes; only the
/// shards of the one push are searched.
package struct ExplainStore: Sendable {
    let database: PushDatabase

    init(_ database: PushDatabase) { self.database = database }

    /// Explains why a device got a push, or why it gets none at all.
    ///
    /// - Parameters:
    ///   - push: A push of the app; `nil`: why the device gets no push at all.
    ///   - app: The app.
    ///   - name: The installation's object id or `installationId`. It may be deleted, or unknown.
    /// - Returns: The explanation.
    /// - Throws: `StorageError`.
    package func explain(
        _ push: StoredPush?,
        app: String,
        installation name: String
    ) async throws -> Explanation {
        ExplainDecision.explain(try await facts(push, app: app, installation: name))
    }

    /// Returns the facts that an explanation is decided by.
    package func facts(
        _ push: StoredPush?,
        app: String,
        installation name: String
    ) async throws -> ExplainFacts {
        let device = try await device(app: app, named: name)
        let id = device?.installation.objectID ?? name
        var facts = ExplainFacts(app: app, installationID: id, asOf: try await now())
        facts.device = device
        facts.settings = AppSettings(try await database.apps.find(app)?.settings ?? [:])
        if device == nil { facts.deleted = try await deletion(of: id, app) }
        facts.credentialProblem = try await credentialProblem(of: device?.installation, push)
        if let push { try await add(push, to: &facts) }
        facts.lastReport = try await lastReport(of: id, app)
        facts.message = try await message(of: id, app, push?.id)
        if facts.mayBeInTrouble, let platform = facts.provider {
            facts.trouble = try await trouble(at: platform, facts)
        }
        return facts
    }

    private func add(_ push: StoredPush, to facts: inout ExplainFacts) async throws {
        let audienceAt = try await audienceTime(of: push)
        // With `.latest` no `push_time` is too far ahead: the request was validated when it came.
        let request = try? PushRequest.parse(push.request, now: .latest, isStored: true)
        var known = ExplainFacts.Push(push, request: request, audienceAt: audienceAt)
        let targets = Self.targets(of: facts, request)
        facts.delivery = try await delivery(of: push, to: targets)
        facts.receipts = try await receipts(of: push, facts.installationID)
        if facts.delivery == nil {
            facts.shard = try await shard(of: push.id, facts.installationID)
            known.hasDeliveries = try await hasDeliveries(push)
        }
        facts.push = known
        if push.status == .cancelled { facts.cancelled = try await cancellation(of: push) }
        if let installation = facts.device?.installation, let request {
            facts.clauses = try await clauses(of: request, installation)
            facts.payload = try await payload(of: push, request, installation, facts)
        }
    }

    /// Returns the targets that a delivery to the device may have, the most exact first.
    private static func targets(of facts: ExplainFacts, _ request: PushRequest?) -> [String] {
        var targets = [facts.installationID]
        switch request?.audience {
        case .tokens:
            if let token = facts.device?.installation.token {
                targets.append(Hex.encode(sha256(Array(token.utf8))))
            }
        case .topic(let topic):
            if facts.device?.installation.platform == .fcm { targets.append(topic.target) }
        case .installations, nil: break
        }
        return targets
    }

    private func now() async throws -> Instant {
        try await database.singles.execute("SELECT now() AS now").first?.instant("now")
            ?? database.clock.now()
    }
}

// MARK: The device

extension ExplainStore {
    private func device(app: String, named name: String) async throws -> ExplainFacts.Device? {
        let named: [PostgresValue] = [.text(app), .text(name)]
        let rows = try await database.singles.execute([
            (Self.device("object_id"), named), (Self.device("installation_id"), named),
        ])
        guard let row = rows[0].first ?? rows[1].first else { return nil }
        return ExplainFacts.Device(
            try InstallationRow.read(row),
            invalidatedAt: try row.instantOrNil("invalidated_at")
        )
    }

    private static func device(_ column: String) -> String {
        """
        SELECT \(InstallationRow.columns), invalidated_at FROM installations
        WHERE app = $1 AND \(column) = $2
        """
    }

    private func credentialProblem(
        of installation: Installation?,
        _ push: StoredPush?
    ) async throws -> LocalFailure? {
        guard let installation, let platform = installation.platform else { return nil }
        let all = try await database.credentials.list(app: installation.app)
            .filter { $0.platform == platform }
        switch platform {
        case .connection, .mpns: return nil
        case .fcm, .wns: return all.isEmpty ? .noCredential : nil
        case .apns: break
        }
        if all.isEmpty { return .noCredential }
        let topics = [
            installation.apnsTopic, installation.fields["appIdentifier"]?.string,
            push?.request["topic"]?.string,
        ]
        guard let topic = topics.compactMap(\.self).first(where: { !$0.isEmpty }) else {
            return all.count == 1 || all.contains(where: \.isDefault) ? nil : .noDefaultCredential
        }
        return all.contains { $0.name == topic } ? nil : .noCredentialOfTopic
    }

    private static let maximumReceipts = 5000

    /// Returns the time of the last report. A device with very many reports may have a later one.
    private func lastReport(of id: String, _ app: String) async throws -> Instant? {
        try await database.singles.execute(
            """
            SELECT max(at) AS at FROM (
                SELECT at FROM push_receipts WHERE app = $1 AND who = $2
                LIMIT \(Self.maximumReceipts)) r
            """,
            [.text(app), .text(id)]
        ).first?.instantOrNil("at")
    }

    /// Returns the message that waits for the device: that of the push, or without a push the
    /// oldest one.
    private func message(
        of id: String,
        _ app: String,
        _ pushID: String?
    ) async throws -> ExplainFacts.Message? {
        try await database.singles.execute(
            """
            SELECT m.stored_at, m.expires_at FROM connection_messages m
            JOIN connection_contents c ON c.id = m.content
            WHERE m.app = $1 AND m.target = $2 AND ($3::uuid IS NULL OR c.push_id = $3::uuid)
            ORDER BY m.seq LIMIT 1
            """,
            [.text(app), .text(id), pushID.map { .uuid($0) } ?? .null]
        ).first.map { row in
            ExplainFacts.Message(
                storedAt: try row.instant("stored_at"),
                expiresAt: try row.instant("expires_at")
            )
        }
    }
}

// MARK: The audit

extension ExplainStore {
    /// The names of the actions that cancel a push.
    private static let cancelling = """
        (action = 'push cancel' OR action LIKE 'DELETE %scheduledPushMessages/%'
            OR action LIKE 'DELETE %schedulednotifications/%' OR action LIKE '%/cancel')
        """

    /// The names of the actions that delete a device; the last one is the console's.
    private static let deleting = """
        (action LIKE 'DELETE %nstallation%' OR action LIKE '%/devices/:id/delete')
        """

    private func cancellation(of push: StoredPush) async throws -> ExplainFacts.Deed? {
        let names = [push.id] + (push.scheduleID.map { [String($0)] } ?? [])
        return try await deed(names, push.app, Self.cancelling, before: push.updatedAt)
    }

    private func deletion(of id: String, _ app: String) async throws -> ExplainFacts.Deed? {
        try await deed([id], app, Self.deleting, before: nil)
    }

    /// Returns the first successful entry of the audit that names one of the targets.
    private func deed(
        _ targets: [String],
        _ app: String,
        _ isMeant: String,
        before limit: Instant?
    ) async throws -> ExplainFacts.Deed? {
        // Not on the connections of `singles`: the index of targets needs a bitmap scan.
        try await database.database.execute(
            """
            SELECT actor, at FROM audit
            WHERE targets && $2::text[] AND app = $1 AND \(isMeant)
                AND (status = 0 OR status BETWEEN 200 AND 399)
            ORDER BY at LIMIT 1
            """,
            [.text(app), .textArray(targets)]
        ).first.map { row in
            ExplainFacts.Deed(actor: try row.text("actor"), at: try row.instant("at"))
        }
    }
}

extension ExplainFacts {
    /// Whether deliveries of the app to the provider matter: the device's own waits, or no push is
    /// named.
    fileprivate var mayBeInTrouble: Bool {
        guard let push else { return device != nil }
        if let delivery { return delivery.state == .pending && !delivery.isOwned }
        return !push.stored.status.isFinal
    }

    /// Whether it is about APNs' sandbox, whose circuit breaker is another one.
    var isSandbox: Bool {
        (delivery?.environment ?? device?.installation.environment) == .sandbox
    }

    fileprivate var provider: Platform? { delivery?.provider ?? device?.installation.platform }
}
