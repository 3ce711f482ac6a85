import Gateway
import HTTPServer
import JSON
import PushCore

/// The content of an HTTP request. A browser's form stands for a request: then it is that request's
/// method, parameters and body. The credential is verified before.
struct LeanCloudRequest {
    let method: HTTPMethod
    let parameters: JSONObject
    let body: LeanCloudCall.Body
    /// The value of `X-LC-Prod`, of its old name, or of the form's key.
    let production: String?

    /// The keys of a form that are not parameters.
    private static let formKeys = [
        "_method", "_ApplicationId", "_ApplicationKey", "_ApplicationProduction", "_MasterKey",
        "_ClientVersion", "_InstallationId", "_SessionToken",
    ]

    init(
        _ request: HTTPServerRequest,
        forMaster isMaster: Bool = false
    ) throws(LeanCloudError) {
        let query = JSONObject(request.query.reversed().map { ($0.name, .string($0.value)) })
        guard let form = try Self.form(in: request, forMaster: isMaster) else {
            method = request.method == .head ? .get : request.method
            parameters = query
            production = Self.production(request)
            // SDKs send `null` or `{}` with methods that have no body.
            body = method == .post || method == .put ? .bytes(request.body) : .none
            return
        }
        let name = form["_method"]?.string ?? "POST"
        guard let method = HTTPMethod(rawValue: name.uppercased()),
            [.get, .post, .put, .delete].contains(method)
        else {
            let given = JSONValue.string(name).shown
            throw LeanCloudError(code: 107, "_method is GET, POST, PUT or DELETE, not \(given).")
        }
        var rest = form
        for key in Self.formKeys { rest.removeValue(forKey: key) }
        self.method = method
        let named = form["_ApplicationProduction"]
        production = named?.string ?? named?.integer.map { String($0) } ?? Self.production(request)
        if method == .post || method == .put {
            parameters = query
            body = .value(.object(rest))
        } else {
            var merged = query
            for (key, value) in rest { merged[key] = value }
            parameters = merged
            body = .none
        }
    }

    private static func production(_ request: HTTPServerRequest) -> String? {
        request.header("x-lc-prod") ?? request.header("x-avoscloud-application-production")
    }

    private static func mayBeForm(_ request: HTTPServerRequest) -> Bool {
        request.method == .post
            && request.header("content-type")?.lowercased().hasPrefix("text/plain") == true
    }

    /// Returns the form, if the request is a POST of plain text that names a method or an app in its body.
    private static func form(
        in request: HTTPServerRequest,
        forMaster isMaster: Bool
    ) throws(LeanCloudError) -> JSONObject? {
        guard mayBeForm(request),
            let object = try LeanCloudCall.parse(request.body, forMaster: isMaster).object,
            object["_method"] != nil || object["_ApplicationId"] != nil
        else { return nil }
        return object
    }

    /// The limit of a form that is searched for credentials. The sender of a longer form must put
    /// them into the headers.
    private static let maximumSearchedBytes = 1 << 20

    private static let credentialWords: [StaticString] = [
        "_ApplicationId", "_ApplicationKey", "_MasterKey",
    ]

    /// Reads the credentials from the headers, or else from a form, which is searched for
    /// nothing else. `requireBodySearchAllowed` gets the size of the form. Throws
    /// `Refusal.unauthorized` if there are no credentials.
    static func credential(
        of request: HTTPServerRequest,
        requireBodySearchAllowed: (_ bytes: Int) throws -> Void
    ) throws -> LeanCloudCredential {
        do {
            return try LeanCloudCredential(headers: request.headers)
        } catch {
            guard mayBeForm(request), request.body.count <= maximumSearchedBytes
            else { throw error }
            let found = try BodyCredentials(
                request,
                named: credentialWords,
                requireBodySearchAllowed: requireBodySearchAllowed
            )
            guard let form = found,
                let app = form.text("_ApplicationId")
            else { throw error }
            var named: HTTPHeaders = [:]
            named["x-lc-id"] = app
            if let key = form.text("_ApplicationKey") { named["x-lc-key"] = key }
            if let master = form.text("_MasterKey") { named["x-lc-key"] = master + ",master" }
            return try LeanCloudCredential(headers: named)
        }
    }
}
