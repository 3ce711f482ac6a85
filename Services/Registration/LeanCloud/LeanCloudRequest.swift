import Door
import HTTPServer
import JSON
import PushCore

/// What an HTTP request says of itself: where it is a browser's form, the method, the parameters and
/// the body that it stands for. Before that is read, its credential has been, and proved.
struct LeanCloudRequest {
    let method: HTTPMethod
    let parameters: JSONObject
    let body: LeanCloudCall.Body
    /// `X-LC-Prod`, by its old name too, or the form's key.
    let production: String?

    /// Keys of a form that are no part of what it asks for.
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
            // SDKs send `null` or `{}` with what takes no body.
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

    /// A POST of plain text that names a method or an app in its body.
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

    /// A longer form has to say who calls by its headers: nobody's 16 MiB are searched for it.
    private static let maximumSearchedBytes = 1 << 20

    private static let credentialWords: [StaticString] = [
        "_ApplicationId", "_ApplicationKey", "_MasterKey",
    ]

    /// Who says that he calls: by the headers, and where they do not say, by a form, which is
    /// searched for that alone; `beforeSearching` is told how much that is. Throws
    /// `Refusal.unauthorized` where nobody does.
    static func credential(
        of request: HTTPServerRequest,
        beforeSearching: (_ bytes: Int) throws -> Void
    ) throws -> LeanCloudCredential {
        do {
            return try LeanCloudCredential(headers: request.headers)
        } catch {
            guard mayBeForm(request), request.body.count <= maximumSearchedBytes
            else { throw error }
            let found = try BodyCredentials(
                request,
                named: credentialWords,
                beforeSearching: beforeSearching
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
