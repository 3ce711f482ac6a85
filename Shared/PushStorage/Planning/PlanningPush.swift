import JSON
import Postgres
package import PushCore

/// A push whose audience a session is writing down.
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
    /// - Throws: `StorageError` of kind `corrupt` where its request cannot be read any more.
    init(_ row: PostgresRow) throws {
        let object = try row.json("request").object ?? [:]
        let request: PushRequest
        do throws(PushRequestError) {
            // It was judged when it came in; what was past then is past now.
            request = try PushRequest.parse(object, now: .latest, isStored: true)
        } catch {
            throw StorageError(.corrupt, "a push's request cannot be read: \(error.description)")
        }
        self.init(id: try row.uuid("id"), app: try row.text("app"), request: request)
    }
}

/// Whether the database has to be asked a condition for it.
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
