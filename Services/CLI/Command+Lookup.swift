import InstallationStorage
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Lookups by the beginning of an id.
extension Command {
    /// The shortest accepted beginning of an id: with fewer characters, one typing error would name
    /// another id.
    static let shortestBeginning = 4
    /// The maximum of ambiguous ids in an error.
    private static let maximumShown = 10

    /// Returns a push's id, or its beginning, in lower case.
    static func pushID(_ text: String) throws(ArgumentsError) -> String {
        let text = text.lowercased()
        let isBeginning =
            PushIdentity.range(beginning: text) != nil && text.utf8.count >= shortestBeginning
        guard isBeginning else {
            throw ArgumentsError(
                "\"\(text)\" is not a push id, nor \(shortestBeginning) characters of one or more"
            )
        }
        return text
    }

    /// Returns the only push whose id is this one, or begins with it.
    static func existing(push id: String, _ database: PushDatabase) async throws -> StoredPush {
        guard !PushIdentity.isUUID(id) else {
            guard let push = try await database.pushes.find(id) else {
                throw CommandFailure("there is no such push")
            }
            return push
        }
        let found = try await database.pushes.find(beginning: id, limit: maximumShown + 1)
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

    /// Returns the only installation whose object id or installationId is this id, or begins with
    /// it.
    static func existing(
        installation id: String,
        of app: String,
        _ database: PushDatabase
    ) async throws -> Installation {
        let found = try await database.installations.find(
            app: app,
            named: id,
            beginnings: id.utf8.count >= shortestBeginning,
            limit: maximumShown + 1
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
        let count = found.count > maximumShown ? "more than \(maximumShown)" : String(found.count)
        let lines = found.prefix(maximumShown).map { "\n  " + $0 }
        return CommandFailure("\(count) \(kind) begin with \(beginning):\(lines.joined())")
    }
}
