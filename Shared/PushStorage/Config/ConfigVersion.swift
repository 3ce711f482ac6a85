package import JSON
import Postgres
package import PushCore

/// Who published a version of a template.
package struct ConfigUser: Sendable, Equatable {
    package var name: String
    package var email: String

    package init(name: String, email: String) {
        self.name = name
        self.email = email
    }
}

/// Why a version is there. The raw values are Firebase's.
package enum ConfigUpdateType: String, Sendable, CaseIterable {
    case incremental = "INCREMENTAL_UPDATE"
    /// Published over whatever was current.
    case forced = "FORCED_UPDATE"
    case rollback = "ROLLBACK"
}

/// How a version stands. The raw values are those of the table.
package enum ConfigVersionState: Int, Sendable, CaseIterable {
    /// Somebody else wrote it, and nobody has looked at it yet.
    case unchecked = 0
    case good = 1
    /// It does not hold: it is never served, and says why.
    case refused = 2

    var sql: String { String(rawValue) }
}

/// One version of an app's template in one namespace, as it is kept.
package struct StoredConfigVersion: Sendable, Equatable {
    package var app: String
    package var namespace: String
    package var version: Int
    /// `nil` where it was not asked for.
    package var template: JSONValue?
    package var description: String
    package var updateType: String
    package var updateOrigin: String
    package var user: ConfigUser
    package var rollbackSource: Int?
    package var publishedAt: Instant
    package var state: ConfigVersionState
    /// Why it is refused.
    package var reason: String?

    /// What it says of itself, as Firebase's clients read it in a template's `version`.
    package var json: JSONObject {
        var object: JSONObject = [
            "versionNumber": .string(String(version)),
            "updateTime": .string(publishedAt.iso8601),
            "updateUser": ["name": .string(user.name), "email": .string(user.email)],
            "updateOrigin": .string(updateOrigin),
            "updateType": .string(updateType),
        ]
        if !description.isEmpty { object["description"] = .string(description) }
        object["rollbackSource"] = rollbackSource.map { .string(String($0)) }
        return object
    }

    static let columns = """
        app, namespace, version, description, update_type, update_origin, user_name, user_email,
        rollback_source, published_at, state, reason
        """

    /// From a row with `columns`, and perhaps `template`.
    init(_ row: PostgresRow, withTemplate: Bool) throws {
        let state = try row.integer("state")
        guard let known = ConfigVersionState(rawValue: state) else {
            throw StorageError(.corrupt, "a version of a template is in the unknown state \(state)")
        }
        app = try row.text("app")
        namespace = try row.text("namespace")
        version = try row.integer("version")
        template = withTemplate ? try row.json("template") : nil
        description = try row.text("description")
        updateType = try row.text("update_type")
        updateOrigin = try row.text("update_origin")
        user = ConfigUser(name: try row.text("user_name"), email: try row.text("user_email"))
        rollbackSource = try row.integerOrNil("rollback_source")
        publishedAt = try row.instant("published_at")
        self.state = known
        reason = try row.textOrNil("reason")
    }
}

/// A template that is to become current.
package struct NewConfigVersion: Sendable {
    package var app: String
    package var namespace: String
    /// Checked already.
    package var template: JSONObject
    package var description: String
    package var user: ConfigUser

    package init(
        app: String,
        namespace: String,
        template: JSONObject,
        description: String,
        user: ConfigUser
    ) {
        self.app = app
        self.namespace = namespace
        self.template = template
        self.description = description
        self.user = user
    }
}

/// What a publisher thinks is current.
package enum ExpectedConfigVersion: Sendable, Equatable {
    /// Whatever it is.
    case any
    case version(Int)
}

/// Another version is current than the publisher thinks.
package struct ConfigVersionMismatch: Error, Sendable, Equatable {
    package let expected: Int
    package let found: Int

    package init(expected: Int, found: Int) {
        self.expected = expected
        self.found = found
    }
}

/// Why a version cannot be gone back to.
package enum ConfigRollbackError: Error, Sendable, Equatable {
    /// It never was, is not kept any more, or never held.
    case notFound
    /// It is the current one, or comes after it.
    case notOlder(current: Int)
}

/// Somebody has used the highest number that a version may have.
package struct ConfigVersionsExhausted: Error, Sendable, Equatable, CustomStringConvertible {
    package var description: String { "the template has no version numbers left" }
}

/// How an app's template stands in one namespace.
package struct ConfigHead: Sendable, Equatable {
    package var app: String
    package var namespace: String
    /// 0: nothing was published.
    package var currentVersion: Int
    /// The highest number that was used.
    package var lastVersion: Int
    /// When it became what it is, among all changes of all templates.
    package var revision: Int

    static let columns = "app, namespace, current_version, last_version, revision"

    package init(app: String, namespace: String) {
        self.app = app
        self.namespace = namespace
        currentVersion = 0
        lastVersion = 0
        revision = 0
    }

    init(_ row: PostgresRow) throws {
        app = try row.text("app")
        namespace = try row.text("namespace")
        currentVersion = try row.integer("current_version")
        lastVersion = try row.integer("last_version")
        revision = try row.integer("revision")
    }
}

/// Which versions are listed, newest first.
package struct ConfigVersionFilter: Sendable {
    /// None after this one.
    package var endVersion: Int?
    package var startTime: Instant?
    package var endTime: Instant?
    /// Only those below this one: where the page before ended.
    package var before: Int?
    /// 1...300.
    package var limit: Int
    /// Those that are refused, and those that nobody has looked at, too.
    package var includesRefused: Bool

    package init(
        endVersion: Int? = nil,
        startTime: Instant? = nil,
        endTime: Instant? = nil,
        before: Int? = nil,
        limit: Int = 300,
        includesRefused: Bool = false
    ) {
        self.endVersion = endVersion
        self.startTime = startTime
        self.endTime = endTime
        self.before = before
        self.limit = min(max(limit, 1), 300)
        self.includesRefused = includesRefused
    }
}
