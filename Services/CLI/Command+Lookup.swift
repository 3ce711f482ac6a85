import PushCore
import PushStorage
import ServiceKit

/// What a person names by its beginning.
extension Command {
    /// Fewer characters are not taken for the beginning of an id: one slip would name another.
    private static let shortestBeginning = 4
    /// How many of those that begin alike are told.
    private static let told = 10

    /// A push's id, or its beginning, in lower case.
    static func pushID(_ text: String) throws(ArgumentsError) -> String {
        let text = text.lowercased()
        let isBeginning =
            PushIdentity.range(beginning: text) != nil && text.utf8.count >= shortestBeginning
        guard isBeginning else {
            throw ArgumentsError(
                "\"\(text)\" is no push id, nor \(shortestBeginning) characters of one or more"
            )
        }
        return text
    }

    /// The one push of this id, or of an id that begins so.
    static func existing(push id: String, _ database: PushDatabase) async throws -> StoredPush {
        guard !PushIdentity.isUUID(id) else {
            guard let push = try await database.pushes.find(id) else {
                throw CommandFailure("there is no such push")
            }
            return push
        }
        let found = try await database.pushes.find(beginning: id, limit: told + 1)
        guard let first = found.first else {
            throw CommandFailure("there is no push whose id begins with \(id)")
        }
        guard found.count == 1 else {
            throw ambiguous(
                id,
                "pushes",
                found.map { "\($0.id)  \($0.app)  \($0.createdAt.iso8601)  \($0.text)" }
            )
        }
        return try await database.pushes.find(first.id) ?? first
    }

    /// The one installation of this object id or installationId, or of one that begins so.
    static func existing(
        installation id: String,
        of app: String,
        _ database: PushDatabase
    ) async throws -> Installation {
        let found = try await database.installations.find(
            app: app,
            named: id,
            beginnings: id.utf8.count >= shortestBeginning,
            limit: told + 1
        )
        guard let first = found.first else {
            throw CommandFailure("\(app) has no installation \(id)")
        }
        guard found.count == 1 else {
            throw ambiguous(
                id,
                "installations",
                found.map { "\($0.objectID)  \($0.installationID ?? "-")" }
            )
        }
        return first
    }

    private static func ambiguous(
        _ beginning: String,
        _ kind: String,
        _ found: [String]
    ) -> CommandFailure {
        let count = found.count > told ? "more than \(told)" : String(found.count)
        let lines = found.prefix(told).map { "\n  " + $0 }
        return CommandFailure("\(count) \(kind) begin with \(beginning):\(lines.joined())")
    }
}
