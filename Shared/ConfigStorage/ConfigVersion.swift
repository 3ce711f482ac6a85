package import JSON
import Postgres
package import PushCore
import Storage

/// The publisher of a template's version.
package struct ConfigUser: Sendable, Equatable {
    package var name: String
    package var email: String

    package init(name: String, email: String) {
        self.name = name
        self.email = email
    }
}

/// The reason for a version. The raw values are Firebase's.
package enum ConfigUpdateType: String, Sendable, CaseIterable {
    case incremental = "INCREMENTAL_UPDATE"
    /// Published over any current version.
    case forced = "FORCED_UPDATE"
    case rollback = "ROLLBACK"
}

/// The state of a version. The raw values are those of the table.
package enum ConfigVersionState: Int, Sendable, CaseIterable {
    /// Another system wrote it, and it was not validated yet.
    case unchecked = 0
    case good = 1
    /// Invalid: it is never served, and has a reason.
    case refused = 2

    var sql: String { String(rawValue) }
}

/// One stored version of an app's template in one namespace.
package struct StoredConfigVersion: Sendable, Equatable {
    package var app: String
    package var namespace: String
    package var version: Int
    /// `nil` if it was not requested.
    package var template: JSONValue?
    package var description: String
    package var updateType: String
    package var updateOrigin: String
    package var user: ConfigUser
    package var rollbackSource: Int?
    package var publishedAt: Instant
    package var state: ConfigVersionState
    /// The reason why it is refused.
    package var reason: String?

    /// Its metadata, as Firebase's clients read it in a template's `version`.
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

    /// Reads a row with `columns`, and perhaps `template`.
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

/// A template to be published.
package struct NewConfigVersion: Sendable {
    package var app: String
    package var namespace: String
    /// The validated template.
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

/// The version that a publisher expects to be current.
package enum ExpectedConfigVersion: Sendable, Equatable {
    /// Any version.
    case any
    case version(Int)
}

/// The current version is not the one that the publisher expects.
package struct ConfigVersionMismatch: Error, Sendable, Equatable {
    package let expected: Int
    package let found: Int

    package init(expected: Int, found: Int) {
        self.expected = expected
        self.found = found
    }
}

/// The reason why a rollback to a version is not possible.
package enum ConfigRollbackError: Error, Sendable, Equatable {
    /// The version never existed, is not stored any more, or was never valid.
    case notFound
    /// It is the current one, or a later one.
    case notOlder(current: Int)
}

/// The highest number that a version may have is in use.
package struct ConfigVersionsExhausted: Error, Sendable, Equatable, CustomStringConvertible {
    package var description: String { "the template has no version numbers left" }
}

/// The state of an app's template in one namespace.
package struct ConfigHead: Sendable, Equatable {
    package var app: String
    package var namespace: String
    /// 0: nothing was published.
    package var currentVersion: Int
    /// The highest number that was used.
    package var lastVersion: Int
    /// The revision of its latest change, among all changes of all templates.
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

/// The filter of a list of versions, newest first.
package struct ConfigVersionFilter: Sendable {
    /// The highest version.
    package var endVersion: Int?
    package var startTime: Instant?
    package var endTime: Instant?
    /// Only versions below this one: the last of the previous page.
    package var before: Int?
    /// 1...300.
    package var limit: Int
    /// Whether refused and unchecked versions are included.
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
