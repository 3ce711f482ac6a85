import HTTPServer
import JSON

/// What a call's method and path ask for. Pure.
enum ParseRoute: Equatable {
    typealias ObjectClass = ObjectOperations.ObjectClass

    case create(ObjectClass)
    case find(ObjectClass)
    case read(ObjectClass, id: String)
    case update(ObjectClass, id: String)
    case delete(ObjectClass, id: String)
    case push
    case batch
    case health

    /// Each of them, an id standing for any.
    static let all: [ParseRoute] =
        ObjectClass.allCases.flatMap { objectClass -> [ParseRoute] in
            [
                .create(objectClass), .find(objectClass), .read(objectClass, id: ":id"),
                .update(objectClass, id: ":id"), .delete(objectClass, id: ":id"),
            ]
        } + [.push, .batch, .health]

    /// What Parse Server has beyond what a push service is asked for.
    private static let refused: TextSet = [
        "aggregate", "apps", "challenge", "cloud_code", "config", "events", "files", "functions",
        "graphql_config", "hooks", "jobs", "login", "loginAs", "logout", "logs", "products",
        "purge", "push_audiences", "requestPasswordReset", "roles", "schemas", "scriptlog",
        "security", "serverInfo", "sessions", "upgradeToRevocableSession", "validate_purchase",
        "verificationEmailRequest", "verifyPassword",
    ]

    /// - Throws: `ObjectError` that names what is not here.
    init(_ method: HTTPMethod, _ path: [String]) throws(ObjectError) {
        switch (path.first ?? "", path.count) {
        case ("health", 1): self = .health
        case ("push", 1): self = try Self.only(.post, method, .push)
        case ("batch", 1): self = try Self.only(.post, method, .batch)
        case ("users", 2) where path[1] == "me": throw Self.notHere("/parse/users/me")
        case ("installations", 1...2):
            self = try Self.object(.installation, method, path.dropFirst())
        case ("users", 1...2): self = try Self.object(.identity, method, path.dropFirst())
        case ("classes", 2...3):
            self = try Self.object(Self.named(path[1]), method, path.dropFirst(2))
        case (let name, _) where Self.refused.contains(name): throw Self.notHere("/parse/\(name)")
        default: throw Self.nothing
        }
    }

    private static func named(_ name: String) throws(ObjectError) -> ObjectClass {
        switch name {
        case "_Installation": .installation
        case "_User": .identity
        case "_PushStatus": .pushRecord
        default:
            throw ObjectError(code: 119, "The class \(name.prefix(100)) is not kept here.")
        }
    }

    private static func object(
        _ objectClass: ObjectClass,
        _ method: HTTPMethod,
        _ id: ArraySlice<String>
    ) throws(ObjectError) -> ParseRoute {
        switch (method, id.first) {
        case (.post, nil): return .create(objectClass)
        case (.get, nil), (.head, nil): return .find(objectClass)
        case (.get, let id?), (.head, let id?): return .read(objectClass, id: id)
        case (.put, let id?): return .update(objectClass, id: id)
        case (.delete, let id?): return .delete(objectClass, id: id)
        default: throw otherMethod
        }
    }

    private static func only(
        _ wanted: HTTPMethod,
        _ method: HTTPMethod,
        _ route: ParseRoute
    ) throws(ObjectError) -> ParseRoute {
        guard method == wanted else { throw otherMethod }
        return route
    }

    /// The id that the path names.
    var id: String? {
        switch self {
        case .read(_, let id), .update(_, let id), .delete(_, let id): id
        case .create, .find, .push, .batch, .health: nil
        }
    }

    /// As the audit shows it: the method that is meant, and the path, by whichever name the class was
    /// called.
    var action: String {
        switch self {
        case .create(let objectClass): "POST /parse/classes/\(objectClass.parseName)"
        case .find(let objectClass): "GET /parse/classes/\(objectClass.parseName)"
        case .read(let objectClass, _): "GET /parse/classes/\(objectClass.parseName)/:id"
        case .update(let objectClass, _): "PUT /parse/classes/\(objectClass.parseName)/:id"
        case .delete(let objectClass, _): "DELETE /parse/classes/\(objectClass.parseName)/:id"
        case .push: "POST /parse/push"
        case .batch: "POST /parse/batch"
        case .health: "GET /parse/health"
        }
    }

    static let nothing = ObjectError(status: 404, code: 1, "There is nothing at this path.")

    static let otherMethod = ObjectError(
        status: 405,
        code: 1,
        "This path does not take this method."
    )

    private static func notHere(_ what: String) -> ObjectError {
        ObjectError(code: 108, "\(what) is not supported.")
    }
}
