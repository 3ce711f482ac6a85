import Gateway
package import HTTPServer
package import JSON
package import PushCore

/// One call to Parse's REST API: its parameters and its sender. Pure.
///
/// It has two forms. REST clients use methods, a query string, a JSON body and `X-Parse-*` headers. Parse's
/// JavaScript package puts all of that into the body of a POST of type `text/plain`, so that a browser sends
/// no preflight: `_method`, `_ApplicationId`, `_JavaScriptKey` and so on. Headers win over the body, and the
/// type of the body is ignored.
package struct ParseCall: Sendable, Equatable {
    package var method: HTTPMethod
    /// The path's segments below `/parse`.
    package var path: [String]
    /// The object, query or push: the body, and the query string's further parameters as strings.
    package var parameters: JSONObject
    /// The installation id that the calling device's SDK sends.
    package var installationID: String?
    /// The id that repeats of one call share.
    package var requestID: String?
    package var isInBatch = false

    package static let prefix = "parse"
    static let maximumDepth = BodyLimits.depth

    /// - Parameters:
    ///   - request: The call. Only `ParseCredential` is read from its body before its sender is
    ///     authenticated.
    ///   - isMaster: Whether the sender proved the master key.
    /// - Throws: `ObjectError` 107 if the body is not a JSON object, the `_method` is unknown, or a name in
    ///   the path or the headers is invalid.
    package init(
        _ request: HTTPServerRequest,
        forMaster isMaster: Bool
    ) throws(ObjectError) {
        parameters = try Self.object(request.body, forMaster: isMaster)
        method = request.method
        if let override = parameters.removeValue(forKey: "_method") {
            guard let name = override.string, let meant = HTTPMethod(rawValue: name.uppercased())
            else {
                throw ObjectError(code: 107, "_method is not an HTTP method: \(override.shown).")
            }
            if method == .post { method = meant }
        }
        for name in ParseCredential.words { parameters.removeValue(forKey: "\(name)") }
        installationID = Self.take("_InstallationId", &parameters)
        requestID = Self.take("_RequestId", &parameters)
        if let id = request.header("x-parse-installation-id") { installationID = id }
        if let id = request.header("x-parse-request-id") { requestID = id }
        for name in Self.words { parameters.removeValue(forKey: name) }
        guard Self.isName(installationID ?? ""), Self.isName(requestID ?? "") else {
            throw ObjectError(code: 107, "_InstallationId or _RequestId cannot be used.")
        }
        path = try Self.path(request.pathSegments)
        for (name, value) in request.query where parameters[name] == nil {
            parameters[name] = .string(value)
        }
    }

    /// Creates the call of a batch item. `target` includes the prefix; the rights are the batch's.
    package init(
        method: HTTPMethod,
        target: String,
        body: JSONObject,
        of batch: ParseCall
    ) throws(ObjectError) {
        let request: HTTPServerRequest
        do {
            request = try HTTPServerRequest(method, target)
        } catch {
            throw ObjectError(code: 107, "A path of the batch cannot be used.")
        }
        self = batch
        isInBatch = true
        self.method = method
        requestID = nil
        parameters = body
        path = try Self.path(request.pathSegments)
        for (name, value) in request.query where parameters[name] == nil {
            parameters[name] = .string(value)
        }
    }

    /// Other keys that clients put into the body, beside the fields of the object.
    private static let words = [
        "_ClientVersion", "_SessionToken", "_RevocableSession", "_ContentType", "_context",
        "_noBody",
    ]

    static func path(_ segments: [String]) throws(ObjectError) -> [String] {
        var path = segments.dropFirst(segments.first == prefix ? 1 : 0)
        if path.last == "" { path.removeLast() }
        guard path.allSatisfy(isName) else {
            throw ObjectError(code: 107, "The path cannot be used.")
        }
        return Array(path)
    }

    private static let maximumNameBytes = 256

    /// Whether a string can be an id or the name of a class: no control character, and not too long.
    private static func isName(_ text: String) -> Bool {
        text.utf8.count <= maximumNameBytes && text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    }

    private static func object(
        _ body: [UInt8],
        forMaster isMaster: Bool
    ) throws(ObjectError) -> JSONObject {
        guard !body.isEmpty else { return [:] }
        let value: JSONValue
        do {
            value = try JSONValue.parse(
                body,
                maximumDepth: maximumDepth,
                maximumValues: BodyLimits.values(forMaster: isMaster)
            )
        } catch {
            throw .malformedJSON(error.description)
        }
        if value.isNull { return [:] }
        guard let object = value.object else { throw .malformedJSON("expected an object") }
        return object
    }

    private static func take(_ name: String, _ parameters: inout JSONObject) -> String? {
        parameters.removeValue(forKey: name)?.string
    }
}

/// The credentials of a call. With a master key, no other key is checked.
package struct ParseCredential: Sendable, Equatable {
    package var app: String
    package var masterKey: String?
    /// The client key, under any of Parse's names: an app has only one here.
    package var clientKey: String?

    private static let clientKeys: [(header: String, word: StaticString)] = [
        (header: "x-parse-rest-api-key", word: "_RESTAPIKey"),
        (header: "x-parse-javascript-key", word: "_JavaScriptKey"),
        (header: "x-parse-client-key", word: "_ClientKey"),
        (header: "x-parse-windows-key", word: "_WindowsKey"),
    ]

    /// The keys of credentials in a body.
    static let words: [StaticString] =
        ["_ApplicationId", "_MasterKey"] + clientKeys.map(\.word)

    /// Reads the app and the key from headers. If they are incomplete, only the missing credentials are
    /// searched for in the body; `requireBodySearchAllowed` gets its size. `nil` if no valid app id is given.
    package init?(
        _ request: HTTPServerRequest,
        requireBodySearchAllowed: (_ bytes: Int) throws -> Void = { _ in }
    ) rethrows {
        let headers = request.headers
        var app = headers["x-parse-application-id"]
        masterKey = Self.given(headers["x-parse-master-key"])
        clientKey = Self.clientKeys.lazy.compactMap { headers[$0.header] }.first
        if app == nil || masterKey == nil && clientKey == nil, !request.body.isEmpty {
            let found = try BodyCredentials(
                request,
                named: Self.words,
                requireBodySearchAllowed: requireBodySearchAllowed
            )
            guard let body = found else { return nil }
            app = app ?? body.text("_ApplicationId")
            masterKey = masterKey ?? Self.given(body.text("_MasterKey"))
            clientKey =
                clientKey ?? Self.clientKeys.lazy.compactMap { body.text("\($0.word)") }.first
        }
        guard let app, AppID.isWellFormed(app) else { return nil }
        self.app = app
    }

    /// An empty key counts as missing.
    private static func given(_ key: String?) -> String? {
        guard let key, !key.isEmpty else { return nil }
        return key
    }
}
