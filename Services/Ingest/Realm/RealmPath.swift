import HTTPServer

/// The paths of App Services that a Realm client uses, and their harmless refusal.
enum RealmPath {
    static let base = "/api/client/v2.0"
    static let location = base + "/app/:appId/location"
    static let login = base + "/app/:appId/auth/providers/:provider/login"
    static let sync = base + "/app/:appId/realm-sync"
    static let profile = base + "/auth/profile"
    static let session = base + "/auth/session"
    static let delete = base + "/auth/delete"

    /// Whether a refusal of the caller would make its client log out, or worse. Only a sign-in may
    /// be refused: its client has nothing to lose yet.
    static func isHarmedByRefusal(_ path: String) -> Bool { !path.hasSuffix("/login") }

    /// The response to what cannot be served now. Clients keep their data, and come again.
    static func unavailable(_ detail: String) -> HTTPProblem {
        HTTPProblem(status: 503, detail: detail, headers: ["Retry-After": "5"])
    }
}
