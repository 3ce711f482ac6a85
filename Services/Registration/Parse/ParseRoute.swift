import Gateway
import HTTPServer
import JSON
import PushCore

/// One call of Parse's API: a method and a path below `/parse`, with all names of the path.
struct ParseRoute: Equatable, Sendable {
    typealias ObjectClass = ObjectOperations.ObjectClass

    /// The operation of a route.
    enum Work: Equatable, Sendable {
        case create(ObjectClass)
        case find(ObjectClass)
        case read(ObjectClass)
        case update(ObjectClass)
        case delete(ObjectClass)
        case push
        case batch
        case health
    }

    let method: HTTPMethod
    /// `classes/_User/:id`, and its alias `users/:id`.
    let patterns: [String]
    let work: Work

    /// The audit's name of the action: the method, and the first of the path's patterns.
    var action: String { "\(method.rawValue) /parse/\(patterns[0])" }

    /// All routes that need a key.
    static let all: [ParseRoute] =
        routes(of: .installation, at: ["classes/_Installation", "installations"])
        + routes(of: .identity, at: ["classes/_User", "users"])
        + routes(of: .pushRecord, at: ["classes/_PushStatus"])
        + [
            ParseRoute(method: .post, patterns: ["push"], work: .push),
            ParseRoute(method: .post, patterns: ["batch"], work: .batch),
        ]

    /// The health check of monitoring, without a key and with any method.
    static let health = ParseRoute(method: .get, patterns: ["health"], work: .health)

    private static func routes(of objectClass: ObjectClass, at paths: [String]) -> [ParseRoute] {
        let named = paths.map { $0 + "/:id" }
        return [
            ParseRoute(method: .post, patterns: paths, work: .create(objectClass)),
            ParseRoute(method: .get, patterns: paths, work: .find(objectClass)),
            ParseRoute(method: .get, patterns: named, work: .read(objectClass)),
            ParseRoute(method: .put, patterns: named, work: .update(objectClass)),
            ParseRoute(method: .delete, patterns: named, work: .delete(objectClass)),
        ]
    }

    // MARK: Lookup by path

    /// Finds the route of an item of a batch, which the router has not seen.
    ///
    /// - Returns: The route, and the id in the path.
    /// - Throws: `ObjectError` that names the missing route.
    static func find(
        _ method: HTTPMethod,
        _ path: [String]
    ) throws(ObjectError) -> (route: ParseRoute, id: String?) {
        if path == ["health"] { return (health, nil) }
        if path == ["users", "me"] { throw nothing(at: path) }
        var isKnown = false
        for route in all {
            for pattern in route.patterns {
                guard let found = PathPattern(text: pattern).match(path) else { continue }
                guard route.method == (method == .head ? .get : method) else {
                    isKnown = true
                    continue
                }
                return (route, found["id"])
            }
        }
        throw isKnown ? .wrongMethod : nothing(at: path)
    }

    /// The features of Parse Server that are not part of a push service.
    private static let refused: ExactStringSet = [
        "aggregate", "apps", "challenge", "cloud_code", "config", "events", "files", "functions",
        "graphql_config", "hooks", "jobs", "login", "loginAs", "logout", "logs", "products",
        "purge", "push_audiences", "requestPasswordReset", "roles", "schemas", "scriptlog",
        "security", "serverInfo", "sessions", "upgradeToRevocableSession", "validate_purchase",
        "verificationEmailRequest", "verifyPassword",
    ]

    /// Returns the error of an unknown path.
    static func nothing(at path: [String]) -> ObjectError {
        let name = path.first ?? ""
        if path == ["users", "me"] { return notSupportedHere("/parse/users/me") }
        if name == "classes", (2...3).contains(path.count),
            !ObjectClass.allCases.contains(where: { $0.parseName == path[1] })
        {
            return ObjectError(code: 119, "The class \(path[1].prefix(100)) is not stored here.")
        }
        if refused.contains(name) { return notSupportedHere("/parse/\(name)") }
        return ObjectError(.nothingHere)
    }

    private static func notSupportedHere(_ what: String) -> ObjectError {
        ObjectError(code: 108, "\(what) is not supported.")
    }
}
