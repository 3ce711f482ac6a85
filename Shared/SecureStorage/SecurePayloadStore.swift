import JSON
import Postgres
package import PushCore
package import PushStorage
import Storage

/// Secure payloads: content that is stored for one identity, and its readers.
///
/// Authority: only Postgres' clock decides whether content has expired. From that moment on, an
/// expired row looks nonexistent to every reader; its bytes are deleted by the next `emptyExpired`.
/// Lock order: a payload before its push.
package struct SecurePayloadStore: Sendable {
    let database: Database

    // MARK: Storing

    /// Looks up a request's key, before anything is sealed.
    ///
    /// - Returns: `nil` if it is new.
    package func answered(_ key: IdempotencyKey) async throws -> IdempotencyResult? {
        let found = try await database.execute(
            """
            SELECT payload, push_id, expires_at, digest FROM secure_keys
            WHERE app = $1 AND key = $2
            """,
            [.text(key.app), .text(key.key)]
        )
        guard let row = found.first else { return nil }
        guard key.mayHaveBody(try row.bytes("digest")) else { return .otherBody }
        return .same(
            IdempotentResponse(
                id: try row.text("payload"),
                pushID: try row.uuid("push_id"),
                expiresAt: try row.instant("expires_at")
            )
        )
    }

    /// Stores content, the push that announces it and the record that carries that push to Kafka:
    /// all or nothing. Of concurrent requests with one key the others wait for the first.
    ///
    /// - Parameters:
    ///   - payload: The content.
    ///   - push: The push, whose id is derived from the payload's.
    ///   - record: The push's record.
    ///   - key: The request's key, where it has one.
    /// - Returns: The result.
    /// - Throws: `StorageError`; then nothing was stored, or its key, if it has one, shows the result.
    package func create(
        _ payload: NewSecurePayload,
        _ push: NewPush,
        record: OutgoingRecord,
        key: IdempotencyKey? = nil
    ) async throws -> SecurePayloadResult {
        for _ in 0..<3 {
            do {
                try await database.transaction { transaction in
                    try await Self.create(payload, push, record, key, transaction)
                }
                return .stored
            } catch let refusal as Refusal {
                switch refusal {
                case .because(let kept): return kept
                case .knownKey:
                    guard let key else { return .idTaken }
                    switch try await answered(key) {
                    case .same(let answer)?: return .repeated(answer)
                    case .otherBody?: return .otherBody
                    // The key was deleted at this moment.
                    case nil: continue
                    }
                }
            } catch let error as StorageError where error.sqlState == "23503" {
                return .noApp
            }
        }
        throw StorageError(.conflict, "a request's key comes and goes", isRetryable: true)
    }

    /// The reason of a rollback.
    private enum Refusal: Error {
        case because(SecurePayloadResult)
        case knownKey
    }

    /// Stores it in one round trip: each statement may find that it has nothing to do.
    private static func create(
        _ payload: NewSecurePayload,
        _ push: NewPush,
        _ record: OutgoingRecord,
        _ key: IdempotencyKey?,
        _ transaction: PostgresTransaction
    ) async throws {
        var statements: [(sql: String, parameters: [PostgresValue])] = []
        if let key { statements.append((claimSQL, claim(key, for: payload, push))) }
        let place = statements.count
        statements.append((insertSQL, parameters(of: payload, push)))
        if case .forDevices(let copies) = payload.content {
            for copy in copies {
                statements.append(
                    (
                        copySQL,
                        [
                            .text(payload.id), .text(payload.app), .text(copy.installation),
                            .bytes(copy.bytes),
                        ]
                    )
                )
            }
        }
        statements.append(ErasureFence.passBarrier(of: [push.app]))
        let pushPlace = statements.count
        statements.append(PushStore.insertion(of: push))
        statements += OutboxStore.appending([record])
        let results = try await transaction.pipeline(statements)
        if key != nil, results[0].affectedRows == 0 { throw Refusal.knownKey }
        guard let inserted = results[place].first, let form = try inserted.textOrNil("form") else {
            throw Refusal.because(.noApp)
        }
        let wanted = SecureIDForm(rawValue: form) ?? .random
        guard wanted == SecureIDForm(of: payload.id) else {
            throw Refusal.because(.otherForm(wanted))
        }
        guard try inserted.boolean("is_kept"), results[pushPlace].affectedRows == 1 else {
            throw Refusal.because(.idTaken)
        }
    }

    private static let claimSQL = """
        INSERT INTO secure_keys (app, key, digest, identity, payload, push_id, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (app, key) DO NOTHING
        """

    private static func claim(
        _ key: IdempotencyKey,
        for payload: NewSecurePayload,
        _ push: NewPush
    ) -> [PostgresValue] {
        [
            .text(key.app), .text(key.key), .bytes(key.bodyMarks.first ?? []),
            .text(payload.identity),
            .text(payload.id), .uuid(push.id), .timestamp(payload.expiresAt.microseconds),
        ]
    }

    // The app's row is locked, so that the form of its ids does not change meanwhile.
    private static let insertSQL = """
        WITH app AS MATERIALIZED (
            SELECT id, coalesce(settings->>'\(AppSettings.secureIDsName)',
                '\(SecureIDForm.random.rawValue)') AS form
            FROM apps WHERE id = $2 AND app_key_sealed <> '' FOR KEY SHARE
        ), kept AS (
            INSERT INTO secure_payloads (id, app, identity, push_id, content, is_sealed, read_once,
                expires_at, ends_at)
            SELECT $1, app.id, $3::text, $4::uuid, $5::bytea, $6::boolean, $7::boolean,
                $8::timestamptz, $8::timestamptz
            FROM app WHERE app.form = $9
            ON CONFLICT (id) DO NOTHING RETURNING id
        )
        SELECT (SELECT form FROM app) AS form, EXISTS (SELECT FROM kept) AS is_kept
        """

    private static func parameters(
        of payload: NewSecurePayload,
        _ push: NewPush
    ) -> [PostgresValue] {
        var (content, isSealed) = ([UInt8]?.none, true)
        if case .atRest(let bytes) = payload.content { (content, isSealed) = (bytes, false) }
        return [
            .text(payload.id), .text(payload.app), .text(payload.identity), .uuid(push.id),
            .optional(bytes: content), .boolean(isSealed), .boolean(payload.readOnce),
            .timestamp(payload.expiresAt.microseconds),
            .text(SecureIDForm(of: payload.id).rawValue),
        ]
    }

    // Selected from the payload: if it was not stored, no copy is.
    private static let copySQL = """
        INSERT INTO secure_sealed (payload, app, installation, content)
        SELECT id, $2, $3, $4 FROM secure_payloads WHERE id = $1
        ON CONFLICT (payload, installation) DO NOTHING
        """
}
