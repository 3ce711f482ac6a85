import JSON
import Observability
package import Postgres
package import PushCore
package import Storage

/// An installation from the export of another platform.
package struct ImportedInstallation: Sendable {
    /// The installation with its times. Its object id is that of the source, or a new one.
    package var installation: Installation
    package var keys: Installation.Keys
    /// The rule of the surface whose clients will use the installation.
    package var rule: SaveRule
    /// Whether the object id is that of the source. Otherwise `rule` finds the installation.
    package var hasOwnID: Bool
    /// The time of the last change in the source; `nil` if the source has none: then every existing
    /// installation counts as newer.
    package var changedAt: Instant?
    /// The fields with the types of their values.
    package var uses: [FieldUse]
    /// The names of its templates (Azure's).
    package var templateNames: [String]

    package init(
        installation: Installation,
        keys: Installation.Keys,
        rule: SaveRule,
        hasOwnID: Bool,
        changedAt: Instant?,
        uses: [FieldUse] = [],
        templateNames: [String] = []
    ) {
        (self.installation, self.keys, self.rule) = (installation, keys, rule)
        (self.hasOwnID, self.changedAt, self.uses) = (hasOwnID, changedAt, uses)
        self.templateNames = templateNames
    }
}

/// The treatment of installations that exist before an import.
package enum ExistingRule: String, Sendable, CaseIterable {
    /// The one that was changed last is kept.
    case newer
    /// Existing installations are kept.
    case keep
    /// Existing installations are replaced.
    case replace
}

/// The outcome of one imported installation.
package enum ImportOutcome: Sendable, Equatable {
    case imported
    /// It replaced an existing installation: one with its id, its `installationId` or its token.
    case updated
    /// An existing installation was kept.
    case skipped
    /// The reason; never contains a value.
    case rejected(String)
}

/// Writes batches of imported installations, each in a transaction of its caller.
package struct InstallationImport: Sendable {
    let database: Database
    let fields: FieldStore
    let templates: HubTemplateStore
    package let app: String
    private let version: FieldsVersion
    private let existing: ExistingRule
    private let types = ImportedTypes()

    /// The most rows of a batch: each takes up to two locks of names, and a server has some
    /// thousand locks.
    package static let maximumRows = 1000

    /// The reason of a row that a recent erasure names.
    package static let erasedReason = "the data of this person was erased"

    /// - Parameters:
    ///   - database: The single database of the process.
    ///   - app: An existing app.
    ///   - version: The version of the app's fields.
    ///   - existing: The treatment of existing installations.
    package init(
        _ database: PushDatabase,
        app: String,
        version: FieldsVersion,
        existing: ExistingRule
    ) {
        self.database = database.database
        fields = database.fields
        templates = database.hubTemplates
        (self.app, self.version, self.existing) = (app, version, existing)
    }

    /// A batch whose fields are checked, ready for its transaction.
    package struct Batch: Sendable {
        fileprivate var rows: [(row: ImportedInstallation, fields: NewFields)?]
        fileprivate var outcomes: [ImportOutcome]

        /// Whether it would decide the type of a field. Two such batches at a time could wait for each
        /// other.
        package var hasNewFields: Bool {
            rows.contains { $0.map { !$0.fields.fields.isEmpty } ?? false }
        }
    }

    /// Checks the types of fields and the names of templates.
    ///
    /// - Throws: `StorageError`.
    package func prepare(_ rows: [ImportedInstallation], isDryRun: Bool) async throws -> Batch {
        var batch = Batch(rows: [], outcomes: [])
        batch.rows.reserveCapacity(rows.count)
        for row in rows {
            do {
                let new = try await fields.check(
                    row.uses,
                    app: app,
                    className: "_Installation",
                    version: version
                )
                if !isDryRun, !row.templateNames.isEmpty {
                    let names = Set(row.templateNames)
                    guard try await templates.know(names, app: app) else {
                        batch.reject("the hub has as many template names as it may")
                        continue
                    }
                }
                batch.rows.append((row, new))
                batch.outcomes.append(.skipped)
            } catch let error as FieldMismatch {
                batch.reject("\(error.field) must be of the type \(error.expected.text)")
            } catch let error as InstallationError {
                batch.reject(error.description)
            }
        }
        return batch
    }

    /// Decides about the rows and writes them. Nothing is durable before the commit.
    ///
    /// - Returns: The outcome of each row, in order.
    /// - Throws: `InstallationBatch.FieldTypeConflict` if another save decided the type of a field;
    ///   `StorageError` of kind `conflict` if an installation was saved in between; `PostgresError`.
    ///   The transaction has to be rolled back then, and may be repeated.
    func write(
        _ prepared: Batch,
        decided: DecidedFields,
        isDryRun: Bool,
        locked: @Sendable () -> Void = {},
        _ transaction: PostgresTransaction
    ) async throws -> [ImportOutcome] {
        var outcomes = prepared.outcomes
        for index in try await erased(prepared, transaction) {
            outcomes[index] = .rejected(Self.erasedReason)
        }
        let saves = prepared.rows.enumerated().compactMap { index, row in
            outcomes[index] == .skipped ? row.map { Self.save($0.row, app) } : nil
        }
        var batch = try await InstallationBatch.read(
            saves,
            locksRows: !isDryRun,
            locksNames: !isDryRun,
            transaction
        )
        locked()
        var (decided, learned) = (decided, DecidedFields())
        for (index, row) in prepared.rows.enumerated() {
            guard let row, outcomes[index] == .skipped else { continue }
            do {
                try decided.require(row.fields)
                outcomes[index] = try batch.take(row.row, existing)
                guard outcomes[index] != .skipped else { continue }
                decided.add(row.fields)
                learned.add(row.fields)
            } catch let error as FieldMismatch {
                outcomes[index] = .rejected(
                    "\(error.field) must be of the type \(error.expected.text)"
                )
            } catch let error as InstallationError {
                outcomes[index] = .rejected(error.description)
            }
        }
        if !isDryRun { try await batch.write(imported: learned, of: app, transaction) }
        return outcomes
    }

    /// Runs `write` with the types that concurrent saves have decided, and repeats it after
    /// collisions. `progress` runs in the same transaction, after the rows are written.
    ///
    /// - Parameters:
    ///   - batch: A prepared batch.
    ///   - isDryRun: Whether nothing is written.
    ///   - repeating: Called before each attempt but the first, without a transaction.
    ///   - locked: Called in each attempt once the names of all devices are locked.
    ///   - progress: Ends the transaction's work.
    /// - Returns: The outcome of each row, in order.
    /// - Throws: `StorageError`; the errors of `repeating` and `progress`.
    package func run(
        _ batch: Batch,
        isDryRun: Bool = false,
        repeating: @escaping @Sendable () async throws -> Void = {},
        locked: @escaping @Sendable () -> Void = {},
        progress: @escaping @Sendable ([ImportOutcome], PostgresTransaction) async throws -> Void =
            { _, _ in }
    ) async throws -> [ImportOutcome] {
        var attempt = 1
        while true {
            do {
                let decided = types.decided
                let outcomes = try await database.transaction { transaction in
                    let outcomes = try await write(
                        batch,
                        decided: decided,
                        isDryRun: isDryRun,
                        locked: locked,
                        transaction
                    )
                    try await progress(outcomes, transaction)
                    return outcomes
                }
                learn(batch, outcomes, isDryRun: isDryRun)
                return outcomes
            } catch let others as InstallationBatch.FieldTypeConflict {
                types.merge(others.fields)
            } catch let error as StorageError
                where error.isRetryable || error.sqlState == "55P03"
            {
                guard attempt < Self.maximumAttempts else { throw error }
                attempt += 1
                try await Task.sleep(for: .milliseconds(100 << attempt))
            }
            try await repeating()
        }
    }

    private static let maximumAttempts = 5

    /// Remembers the types that a batch has stored; in a dry run, those that it would have stored.
    private func learn(_ batch: Batch, _ outcomes: [ImportOutcome], isDryRun: Bool) {
        var learned = DecidedFields()
        for (entry, outcome) in zip(batch.rows, outcomes) {
            guard let entry, outcome == .imported || outcome == .updated else { continue }
            if isDryRun {
                learned.add(entry.fields)
            } else {
                fields.types.learned(entry.fields)
            }
        }
        if !learned.isEmpty { types.merge(learned) }
    }

    private static func save(_ row: ImportedInstallation, _ app: String) -> InstallationSave {
        let id = row.hasOwnID ? row.installation.objectID : nil
        let request = SaveRequest(rule: row.rule, objectID: id, keys: row.keys)
        var save = InstallationSave(app: app, request: request, fields: nil) { _ in
            row.installation
        }
        // Another installation may have been reached by this route, whatever the save named.
        let installation = row.installation
        if !installation.isTemplateOnly, let platform = installation.platform,
            let token = installation.token
        {
            save.furtherKeys.routes.insert(DeviceKeys.Route(platform: platform, token: token))
        }
        return save
    }

    /// Returns the places of rows that name someone whose data was erased after the row's last
    /// change: an old export must not bring the person back.
    private func erased(
        _ batch: Batch,
        _ transaction: PostgresTransaction
    ) async throws -> Set<Int> {
        let barrier = ErasureFence.passBarrier(of: [app])
        let fenced = ErasureFence.fencedApps(of: [app])
        let apps = try await transaction.pipeline([barrier, fenced])[1].rows
        guard !apps.isEmpty else { return [] }
        var candidates: [ErasureFence.Candidate] = []
        for (index, entry) in batch.rows.enumerated() {
            guard let row = entry?.row else { continue }
            let names = [
                row.installation.identity, row.installation.objectID,
                row.installation.installationID,
            ]
            for name in names.compactMap(\.self) {
                candidates.append(
                    ErasureFence.Candidate(
                        place: index,
                        app: app,
                        name: name,
                        atMicroseconds: (row.changedAt ?? .earliest).microseconds
                    )
                )
            }
        }
        guard database.erasureKey.isUsable else {
            throw StorageError(
                .corrupt,
                "data of this app was erased recently: set CARILLON_MASTER_KEYS, so that no erased"
                    + " person is imported"
            )
        }
        return try await ErasureFence.erased(
            candidates,
            in: apps,
            key: try await database.erasureKey.bytes(in: database),
            transaction
        )
    }
}

/// The types of fields that were decided during one import, beside those in the cache.
private final class ImportedTypes: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var fields = DecidedFields()

    var decided: DecidedFields { lock.withLock { unsafe fields } }

    func merge(_ others: DecidedFields) { lock.withLock { unsafe fields.merge(others) } }
}

extension InstallationImport.Batch {
    fileprivate mutating func reject(_ reason: String) {
        rows.append(nil)
        outcomes.append(.rejected(reason))
    }
}

extension InstallationBatch {
    /// Applies one imported installation. If it throws, nothing has changed.
    mutating func take(
        _ row: ImportedInstallation,
        _ rule: ExistingRule
    ) throws(InstallationError) -> ImportOutcome {
        var kept = row.installation
        let id = row.hasOwnID ? kept.objectID : nil
        let request = SaveRequest(rule: row.rule, objectID: id, keys: row.keys)
        var target: Installation?
        var replaced: [String] = []
        if row.hasOwnID {
            target = current[kept.rowID]
        } else {
            let decision = try request.decide(
                among: installations(holding: keys(of: request, kept))
            )
            replaced = decision.replaced
            if case .update(let objectID) = decision.target {
                target = current[RowID(app: kept.app, objectID: objectID)]
                kept.objectID = objectID
            }
        }
        let others = installations(holding: Self.keys(of: kept))
        let displaced = request.displaced(by: kept, among: others).compactMap {
            current[RowID(app: kept.app, objectID: $0.objectID)]
        }
        let existing = displaced + [target].compactMap(\.self)
        if !existing.isEmpty {
            switch rule {
            case .keep: return .skipped
            case .newer:
                guard let time = row.changedAt, existing.allSatisfy({ $0.updatedAt < time }) else {
                    return .skipped
                }
            case .replace: break
            }
        }
        if let target {
            kept.createdAt = min(kept.createdAt, target.createdAt)
            kept.updatedAt = max(kept.updatedAt, kept.createdAt)
        }
        for objectID in replaced where objectID != kept.objectID {
            delete(RowID(app: kept.app, objectID: objectID))
        }
        displace(by: kept, request)
        remember(kept)
        current[kept.rowID] = kept
        changed.insert(kept.rowID)
        // A row of this batch may have replaced it, and now it is there again.
        deleted.remove(kept.rowID)
        return existing.isEmpty ? .imported : .updated
    }

    private func keys(of request: SaveRequest, _ kept: Installation) -> Set<Key> {
        var keys = Self.keys(of: kept)
        if let id = request.effectiveInstallationID {
            keys.insert(Key(app: kept.app, kind: .installationID, text: ExactString(id)))
        }
        return keys
    }

    // MARK: Writing

    /// Writes the batch: all rows are copied to a temporary table, and from there inserted or
    /// updated by one statement each.
    func write(
        imported learned: DecidedFields,
        of app: String,
        _ transaction: PostgresTransaction
    ) async throws {
        var statements: [(sql: String, parameters: [PostgresValue])] = []
        if !deleted.isEmpty {
            statements.append((Self.deleteSQL, Self.names(deleted.sorted())))
        }
        let vacated = vacated
        if !vacated.isEmpty {
            statements.append((Self.vacateSQL, Self.names(vacated.sorted())))
        }
        let rows = changed.sorted()
        if !rows.isEmpty {
            let table = (sql: Self.stagingSQL, parameters: [PostgresValue]())
            _ = try await transaction.pipeline(statements + [table])
            statements = []
            _ = try await transaction.copyIn(
                table: "pg_temp.\(Self.staging)",
                columns: StagedRow.columns,
                stagedRows(rows)
            )
            statements.append((Self.insertStagedSQL, [.text(app)]))
            if rows.contains(where: { !isNew($0) }) {
                statements.append((Self.updateStagedSQL, [.text(app)]))
            }
        }
        let writes = statements.count
        if !learned.isEmpty { statements += FieldStore.statements(learning: learned.fields) }
        guard !statements.isEmpty else { return }
        let results = try await transaction.pipeline(statements)
        if !learned.isEmpty {
            let stored = DecidedFields(try FieldStore.decided(results[writes + 1].rows))
            guard learned.agrees(with: stored) else { throw FieldTypeConflict(fields: stored) }
        }
        let written = results[..<writes].reduce(0) { $0 + $1.affectedRows }
        guard rows.isEmpty || written == rows.count else {
            throw StorageError(
                .conflict,
                "an installation was saved while it was imported",
                isRetryable: true
            )
        }
    }

    private func stagedRows(_ rows: [RowID]) -> CopyRows {
        var copied = CopyRows(columns: StagedRow.columns.count, rows: rows.count)
        for row in rows {
            guard let installation = current[row] else { continue }
            copied.append { cells in
                cells.boolean(isNew(row))
                StagedRow.write(installation, into: &cells)
            }
        }
        return copied
    }

    private static let staging = "carillon_imported"

    private static let stagingSQL = """
        CREATE TEMPORARY TABLE IF NOT EXISTS \(staging) (
            is_new boolean, object_id text COLLATE "C", device_type text, provider text, token text,
            environment text, identity text, channels text[], installation_id text, badge integer,
            time_zone text, locale text, apns_topic text, vendor text, device_profile text,
            fields jsonb, valid boolean, invalid_reason text, token_updated_at timestamptz,
            channels_absent boolean, badge_absent boolean, template_only boolean,
            created_at timestamptz, updated_at timestamptz) ON COMMIT DELETE ROWS
        """

    /// The columns that are copied as they are.
    private static let plain = StagedRow.columns.filter { $0 != "is_new" }
    private static let plainList = plain.joined(separator: ", ")

    /// An installation that a concurrent save has stored since the batch was read is not inserted.
    /// Then the number of rows is too small, and the batch is repeated.
    private static let insertStagedSQL = """
        INSERT INTO installations (app, token_hash, invalidated_at, \(plainList))
        SELECT $1, CASE WHEN NOT template_only THEN sha256(convert_to(token, 'UTF8')) END,
            CASE WHEN invalid_reason IS NOT NULL THEN now() END, \(plainList)
        FROM pg_temp.\(staging) WHERE is_new
        ON CONFLICT DO NOTHING
        """

    private static let updateStagedSQL = """
        UPDATE installations i SET \(plain.map { "\($0) = w.\($0)" }.joined(separator: ", ")),
            token_hash = CASE WHEN NOT w.template_only THEN sha256(convert_to(w.token, 'UTF8')) END,
            invalidated_at = CASE WHEN w.invalid_reason IS NOT NULL
                THEN coalesce(i.invalidated_at, now()) END
        FROM pg_temp.\(staging) w
        WHERE NOT w.is_new AND i.app = $1 AND i.object_id = w.object_id
        """
}

/// A row of the temporary table.
private enum StagedRow {
    static let columns = [
        "is_new", "object_id", "device_type", "provider", "token", "environment", "identity",
        "channels", "installation_id", "badge", "time_zone", "locale", "apns_topic", "vendor",
        "device_profile", "fields", "valid", "invalid_reason", "token_updated_at",
        "channels_absent", "badge_absent", "template_only", "created_at", "updated_at",
    ]

    /// Writes all cells after `is_new`.
    static func write(_ installation: Installation, into cells: inout CopyCells) {
        cells.text(installation.objectID)
        cells.text(installation.deviceType)
        cells.text(installation.platform?.rawValue)
        cells.text(installation.token)
        cells.text(installation.environment.rawValue)
        cells.text(installation.identity)
        cells.textArray(installation.channels)
        cells.text(installation.installationID)
        cells.integer(installation.badge)
        cells.text(installation.timeZone)
        cells.text(installation.locale)
        cells.text(installation.apnsTopic)
        cells.text(installation.vendor)
        cells.text(installation.deviceProfile)
        cells.jsonb(JSONValue.object(installation.fields).bytes)
        cells.boolean(installation.isValid)
        cells.text(installation.invalidReason)
        cells.timestamp(installation.tokenUpdatedAt?.microseconds)
        cells.boolean(!installation.hasChannels)
        cells.boolean(!installation.hasBadge)
        cells.boolean(installation.isTemplateOnly)
        cells.timestamp(installation.createdAt.microseconds)
        cells.timestamp(installation.updatedAt.microseconds)
    }
}
