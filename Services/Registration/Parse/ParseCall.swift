import Door
package import HTTPServer
package import JSON
import PushCore

/// One call to Parse's REST API: what it asks for, and who says so. Pure.
///
/// It comes in two forms. REST clients use methods, a query string, a JSON body and `X-Parse-*`
/// headers. Parse's JavaScript package puts all of that into the body of a POST of type
/// `text/plain`, so that a browser need not ask first: `_method`, `_ApplicationId`,
/// `_JavaScriptKey` and so on. Headers win over what the body says, and the type of the body is not
/// looked at.
package struct ParseCall: Sendable, Equatable {
    package var method: HTTPMethod
    /// The path's segments below `/parse`.
    package var path: [String]
    /// The object, query or push: the body, and what the query string has beside it, as texts.
    package var parameters: JSONObject
    /// The device that the call comes from, as its SDK numbers it.
    package var installationID: String?
    /// Names the repeats of one call.
    package var requestID: String?
    package var isInBatch = false

    package static let prefix = "parse"
    static let maximumDepth = BodyLimits.depth

    /// - Parameters:
    ///   - request: The call. Nothing of its body but `ParseCredential` is read before its sender is
    ///     known.
    ///   - isMaster: Whether the sender proved the master key.
    /// - Throws: `ObjectError` 107 for a body that is no JSON object, a `_method` that is none, and
    ///   a name in the path or the headers that nothing here can be called by.
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

    /// An item of a batch: the path with its prefix, the rights of the batch.
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

    /// What else clients say of themselves in the body: it is none of the object's fields.
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

    /// What an id or a class can be called: no control character, and not without end.
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

/// What a call says to prove who sends it. With a master key, no other is looked at.
package struct ParseCredential: Sendable, Equatable {
    package var app: String
    package var masterKey: String?
    /// Whichever of Parse's client keys it is: an app here has one.
    package var clientKey: String?

    private static let clientKeys: [(header: String, word: StaticString)] = [
        (header: "x-parse-rest-api-key", word: "_RESTAPIKey"),
        (header: "x-parse-javascript-key", word: "_JavaScriptKey"),
        (header: "x-parse-client-key", word: "_ClientKey"),
        (header: "x-parse-windows-key", word: "_WindowsKey"),
    ]

    /// What it is called in a body.
    static let words: [StaticString] =
        ["_ApplicationId", "_MasterKey"] + clientKeys.map(\.word)

    /// Headers that name the app and a key say who calls. Where they do not, the body is searched
    /// for what they leave open, and for nothing else; `beforeSearching` is told how much that is.
    /// `nil` where no app is named that could be one.
    package init?(
        _ request: HTTPServerRequest,
        beforeSearching: (_ bytes: Int) throws -> Void = { _ in }
    ) rethrows {
        let headers = request.headers
        var app = headers["x-parse-application-id"]
        masterKey = Self.given(headers["x-parse-master-key"])
        clientKey = Self.clientKeys.lazy.compactMap { headers[$0.header] }.first
        if app == nil || masterKey == nil && clientKey == nil, !request.body.isEmpty {
            let found = try BodyCredentials(
                request,
                named: Self.words,
                beforeSearching: beforeSearching
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

    /// Who leaves the master key empty gives none.
    private static func given(_ key: String?) -> String? {
        guard let key, !key.isEmpty else { return nil }
        return key
    }
}
