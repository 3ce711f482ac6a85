import JSON
import Postgres
package import PushCore
import Storage

/// A push whose audience a session is planning.
package struct PlanningPush: Sendable, Equatable {
    package var id: String
    package var app: String
    package var request: PushRequest

    package init(id: String, app: String, request: PushRequest) {
        self.id = id
        self.app = app
        self.request = request
    }
}

extension PlanningPush {
    /// - Throws: `StorageError` of kind `corrupt` if its request cannot be read any more.
    init(_ row: PostgresRow) throws {
        let object = try row.json("request").object ?? [:]
        let request: PushRequest
        do throws(PushRequestError) {
            // The request was validated when it arrived. With `.latest` no `push_time` is too far
            // ahead.
            request = try PushRequest.parse(object, now: .latest, isStored: true)
        } catch {
            throw StorageError(.corrupt, "a push's request cannot be read: \(error.description)")
        }
        self.init(id: try row.uuid("id"), app: try row.text("app"), request: request)
    }
}

/// Whether planning an audience has to evaluate a condition.
package enum AudienceKind: Sendable {
    case plain, conditional
}

extension PushRequest {
    package var hasCondition: Bool {
        switch audience {
        case .tokens, .topic: false
        case .installations(let selectors): selectors.condition != nil
        }
    }
}
