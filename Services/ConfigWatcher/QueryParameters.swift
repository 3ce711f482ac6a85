import HTTPServer

/// The query of one request. Google's transcoding binds each parameter by its name in camel case or in snake
/// case: `pageSize` is also `page_size`. An unknown name is rejected.
struct QueryParameters: Sendable {
    private var values: [(name: String, value: String)] = []

    /// - Parameters:
    ///   - request: The request with the query.
    ///   - names: The route's own parameters, in camel case.
    /// - Throws: 400 with the name of an unknown parameter.
    init(_ request: HTTPServerRequest, taking names: [String]) throws(FirebaseError) {
        for (given, value) in request.query {
            if let name = names.first(where: { Self.means(given, $0) }) {
                values.append((name, value))
            } else if !Self.isStandard(given) {
                throw .unknownParameter(given)
            }
        }
    }

    /// The first value that is not empty.
    subscript(name: String) -> String? {
        values.first { $0.name == name && !$0.value.isEmpty }?.value
    }

    /// Returns all values of a parameter of the route.
    func all(_ name: String) -> [String] { values.filter { $0.name == name }.map(\.value) }

    private static func means(_ given: String, _ name: String) -> Bool {
        if given == name || given == snakeCase(name) { return true }
        // Accepted in any case since the first version.
        return name == "validateOnly"
            && ["validateonly", "validate_only"].contains(given.lowercased())
    }

    private static func snakeCase(_ name: String) -> String {
        name.reduce(into: "") { result, character in
            if character.isUppercase { result.append("_") }
            result += character.lowercased()
        }
    }

    /// Whether Google's platform accepts a name at every route of every service, also with a leading dollar
    /// sign.
    private static func isStandard(_ name: String) -> Bool {
        let bare = name.hasPrefix("$") ? name.dropFirst() : name[...]
        return standard.contains(String(bare))
    }

    private static let standard: Set<String> = [
        ".xgafv", "access_token", "alt", "apiKey", "bearer_token", "callback", "ct", "fields",
        "httpHeaders", "httpMethod", "key", "oauth_token", "outputDefaults", "pp", "prettyPrint",
        "quotaUser", "req", "trace", "unique", "uploadType", "upload_protocol", "userIp",
        "userProject",
    ]
}
