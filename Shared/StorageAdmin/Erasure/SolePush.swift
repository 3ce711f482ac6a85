import JSON
import Postgres
import PushCore
import PushStorage
import Storage

/// Pushes whose only targets are a subject's devices: their content must not outlive the subject.
/// Before a push has its targets, its selectors decide. Afterwards its deliveries decide, however
/// the push was addressed.
enum SolePush {
    // MARK: By its selectors

    private static let namingFields = Redaction.namingFields.union([WherePath.identity.text])

    static func isSelected(by request: JSONObject, _ names: ExactStringSet) -> Bool {
        guard let parsed = try? PushRequest.parse(request, now: .now(), isStored: true) else {
            // The fields are of another version: the lists, which all versions have, decide.
            let identities = request["identities"]?.array ?? []
            let installations = request["installations"]?.array ?? []
            return [identities, installations].contains { list in
                isOnly(list.map { $0.string ?? "" }, names)
            }
        }
        switch parsed.audience {
        case .topic: return false
        case .tokens(let tokens): return isOnly(tokens.map(\.token), names)
        case .installations(let selectors):
            // Each selector narrows the others.
            return isOnly(selectors.installations ?? [], names)
                || isOnly(selectors.identities ?? [], names)
                || selectors.condition.map { isOnly($0, names) } ?? false
        }
    }

    private static func isOnly(_ list: [String], _ names: ExactStringSet) -> Bool {
        !list.isEmpty && list.allSatisfy(names.contains)
    }

    private static func isOnly(_ condition: Where, _ names: ExactStringSet) -> Bool {
        switch condition {
        case .all(let parts): return parts.contains { isOnly($0, names) }
        case .any(let parts): return !parts.isEmpty && parts.allSatisfy { isOnly($0, names) }
        case .none: return false
        case .field(let path, let test):
            func isName(_ value: WhereValue) -> Bool {
                switch value {
                case .string(let text): namingFields.contains(path.text) && names.contains(text)
                case .pointer(let className, let objectID):
                    (namingFields.contains(path.text) || className == "_User")
                        && names.contains(objectID)
                case .null, .bool, .integer, .double, .date, .point, .structure: false
                }
            }
            switch test {
            case .equal(let value): return isName(value)
            case .among(let values): return !values.isEmpty && values.allSatisfy(isName)
            case .holdsAll(let elements):
                return elements.contains { element in
                    if case .value(let value) = element { isName(value) } else { false }
                }
            case .notEqual, .compare, .notAmong, .containedBy, .size, .exists, .pattern, .inQuery,
                .notInQuery, .selected, .notSelected, .near, .inBox, .inPolygon:
                return false
            }
        }
    }

    // MARK: By its deliveries

    /// Finds the pushes that have targets, all of them erased. Must be called after the subject's
    /// deliveries were redacted.
    static func allErased(
        of pushIDs: [String],
        _ transaction: PostgresTransaction
    ) async throws -> Set<String> {
        let rows = try await transaction.execute(
            """
            SELECT p.id FROM (SELECT id, targeted, (created_at AT TIME ZONE 'UTC')::date AS day
                FROM pushes WHERE id = ANY ($1::uuid[]) AND \(isPlanned)) p
            WHERE CASE WHEN EXISTS (SELECT FROM deliveries d WHERE d.day = p.day AND d.push_id = p.id
                        AND NOT (\(isErased)))
                    OR EXISTS (SELECT FROM delivery_chunks c WHERE c.day = p.day AND c.push_id = p.id
                        AND c.first_id IS NOT NULL) THEN false
                ELSE p.targeted = \(erasedCount) END
            """,
            [.uuidArray(pushIDs)]
        ).rows
        return Set(try rows.map { try $0.uuid("id") })
    }

    /// Finds the pushes whose deliveries all went to the subject, as many as `counts` says, or are
    /// erased.
    ///
    /// - Parameters:
    ///   - counts: The number of deliveries that each push has to the subject.
    ///   - database: The database.
    /// - Returns: The ids of these pushes.
    /// - Throws: `StorageError`.
    static func onlyTargets(
        _ counts: [String: Int],
        in database: Database
    ) async throws -> Set<String> {
        guard !counts.isEmpty else { return [] }
        let ids = counts.keys.sorted()
        let rows = try await database.execute(
            """
            SELECT p.id FROM (
                SELECT a.id, a.targeted, i.count, (a.created_at AT TIME ZONE 'UTC')::date AS day
                FROM unnest($1::uuid[], $2::bigint[]) AS i(id, count) JOIN all_pushes a ON a.id = i.id
                WHERE a.status IN (\(planned))) p
            WHERE CASE WHEN p.targeted < p.count THEN false WHEN p.targeted = p.count THEN true
                ELSE p.targeted = p.count + \(erasedCount) END
            """,
            [.uuidArray(ids), .integerArray(ids.map { counts[$0] })]
        ).rows
        return Set(try rows.map { try $0.uuid("id") })
    }

    /// The states in which the targets are fixed.
    private static let planned = [PushStatus.sending, .done, .cancelled, .failed].map(\.sql)
        .joined(separator: ", ")
    private static let isPlanned = "targeted > 0 AND open_shards = 0 AND status IN (\(planned))"
    /// The targets of erased deliveries: see `SubjectRows`.
    private static let isErased = "d.target >= 'erased-' AND d.target < 'erased.'"
    private static let erasedCount = """
        (SELECT count(*) FROM deliveries d
            WHERE d.day = p.day AND d.push_id = p.id AND \(isErased))
        + (SELECT count(*) FROM delivery_chunks c CROSS JOIN unnest(c.targets) AS t(target)
            WHERE c.day = p.day AND c.push_id = p.id AND t.target IS NULL)
        """

    // MARK: Without its content

    /// Fields about the time and manner of sending, without audience and content.
    private static let plainFields: ExactStringSet = [
        "app", "id", "source", "identityPoolId", "push_time", "expiration_time",
        "expiration_interval", "prod", "topic", "apns_team_id", "priority", "pace", "spread",
        "flow_control", "dry_run", "platforms",
    ]

    /// Returns the rest of a request, which can be parsed and selects no device.
    static func withoutContent(_ request: JSONObject) -> JSONObject {
        var result: JSONObject = [:]
        var hasList = false
        for (key, value) in request {
            if Redaction.lists.contains(key) {
                result[key] = []
                hasList = true
            } else if plainFields.contains(key) {
                result[key] = value
            }
        }
        if !hasList { result["installations"] = [] }
        result["data"] = ["alert": .string(ErasureFence.mark)]
        return result
    }

    /// Returns the notes without those that contain parts of the request.
    static func withoutContent(notes: JSONObject) -> JSONObject {
        JSONObject(
            notes.filter { !["dryRun", "notificationId", "unknownFields"].contains($0.key) }
        )
    }
}
