import Door
import HTTPServer
import JSON

/// One call of Parse's API: a method and a path below `/parse`, by each of the path's names.
struct ParseRoute: Equatable, Sendable {
    typealias ObjectClass = ObjectOperations.ObjectClass

    /// What is done.
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
    /// `classes/_User/:id`, and `users/:id` beside it.
    let patterns: [String]
    let work: Work

    /// As the audit shows it: the method that is meant, and the path, by whichever name the class was
    /// called.
    var action: String { "\(method.rawValue) /parse/\(patterns[0])" }

    /// All that can be called with a key.
    static let all: [ParseRoute] =
        routes(of: .installation, at: ["classes/_Installation", "installations"])
        + routes(of: .identity, at: ["classes/_User", "users"])
        + routes(of: .pushRecord, at: ["classes/_PushStatus"])
        + [
            ParseRoute(method: .post, patterns: ["push"], work: .push),
            ParseRoute(method: .post, patterns: ["batch"], work: .batch),
        ]

    /// Asked by whoever watches the service, without a key, and by any method.
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

    // MARK: By a path

    /// What an item of a batch asks for, which no router has seen.
    ///
    /// - Returns: The route, and the id that the path names.
    /// - Throws: `ObjectError` that names what is not here.
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

    /// What Parse Server has beyond what a push service is asked for.
    private static let refused: TextSet = [
        "aggregate", "apps", "challenge", "cloud_code", "config", "events", "files", "functions",
        "graphql_config", "hooks", "jobs", "login", "loginAs", "logout", "logs", "products",
        "purge", "push_audiences", "requestPasswordReset", "roles", "schemas", "scriptlog",
        "security", "serverInfo", "sessions", "upgradeToRevocableSession", "validate_purchase",
        "verificationEmailRequest", "verifyPassword",
    ]

    /// The error of a path that no route has.
    static func nothing(at path: [String]) -> ObjectError {
        let name = path.first ?? ""
        if path == ["users", "me"] { return notHere("/parse/users/me") }
        if name == "classes", (2...3).contains(path.count),
            !ObjectClass.allCases.contains(where: { $0.parseName == path[1] })
        {
            return ObjectError(code: 119, "The class \(path[1].prefix(100)) is not kept here.")
        }
        if refused.contains(name) { return notHere("/parse/\(name)") }
        return ObjectError(.nothingHere)
    }

    private static func notHere(_ what: String) -> ObjectError {
        ObjectError(code: 108, "\(what) is not supported.")
    }
}
