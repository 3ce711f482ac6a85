import Gateway
import HTTPServer
import JSON
import PushCore
import SyncStorage

/// The parameters of a Cognito Sync call. They are validated by Cognito's own rules, as clients
/// check few of them.
struct CognitoRequest: Sendable {
    private let request: HTTPServerRequest
    /// Empty if there is no body.
    let body: JSONObject

    /// A dataset may have 1,024 records, each patch five members.
    private static let maximumValues = BodyLimits.valuesOfClients
    private static let maximumDeviceIDLength = 256

    /// - Throws: `CognitoError` if the body is not a JSON object.
    init(_ request: HTTPServerRequest) throws(CognitoError) {
        self.request = request
        guard !request.body.isEmpty else {
            body = [:]
            return
        }
        let parsed: JSONValue
        do throws(JSONError) {
            parsed = try JSONValue.parse(
                request.body,
                maximumDepth: BodyLimits.depth,
                maximumValues: Self.maximumValues
            )
        } catch {
            throw .invalid("The body is not JSON: \(error.description)")
        }
        guard let object = parsed.object else { throw .invalid("The body must be a JSON object") }
        body = JSONObject(object.filter { !$0.value.isNull }.map { ($0.key, $0.value) })
    }

    /// - Throws: `CognitoError` if a segment of the path is empty, `.` or `..`, which clients
    ///   resolve.
    static func checkLabels(of request: HTTPServerRequest) throws(CognitoError) {
        for label in request.pathSegments where label.isEmpty || label == "." || label == ".." {
            throw .invalid("A name in the path must not be empty, '.' or '..'")
        }
    }

    // MARK: The path

    func pool() throws(CognitoError) -> String {
        try id("pool", "IdentityPoolId")
    }

    func owner(_ caller: Caller) throws(CognitoError) -> SyncIdentity {
        SyncIdentity(
            pool: try pool(),
            app: caller.appID,
            identity: try id("identity", "IdentityId")
        )
    }

    func dataset(_ caller: Caller) throws(CognitoError) -> SyncDatasetName {
        let name = request.pathParameters["dataset"] ?? ""
        guard SyncID.isDatasetName(name) else {
            throw .invalid("DatasetName must be 1 to 128 of a-z, A-Z, 0-9, '_', '.', ':' and '-'")
        }
        return SyncDatasetName(try owner(caller), name)
    }

    func device() throws(CognitoError) -> String {
        try Self.deviceID(request.pathParameters["device"] ?? "")
    }

    private func id(_ label: String, _ member: String) throws(CognitoError) -> String {
        let id = request.pathParameters[label] ?? ""
        guard SyncID.isWellFormed(id) else {
            throw .invalid(
                "\(member) must be at most \(SyncID.maximumLength) characters of the form"
                    + " us-east-1:0123abcd-…"
            )
        }
        return id
    }

    static func deviceID(_ text: String) throws(CognitoError) -> String {
        guard (1...maximumDeviceIDLength).contains(text.unicodeScalars.count),
            !text.utf8.contains(0)
        else {
            throw .invalid("DeviceId must be 1 to \(maximumDeviceIDLength) characters")
        }
        return text
    }

    // MARK: The query

    /// Returns a whole number that is not negative; `nil` if the parameter is missing.
    func number(_ name: String) throws(CognitoError) -> Int? {
        guard let text = request.queryValue(name) else { return nil }
        guard let number = Int(text), number >= 0,
            text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
        else {
            let given = JSONValue.string(text).shown
            throw .invalid("\(name) must be a whole number that is not negative, not \(given)")
        }
        return number
    }

    /// Returns the size of a page, at most `most`.
    func limit(_ most: Int) throws(CognitoError) -> Int {
        guard let asked = try number("maxResults") else { return most }
        guard asked >= 1 else { throw .invalid("maxResults must be at least 1, not \(asked)") }
        return min(asked, most)
    }

    var nextToken: String? { request.queryValue("nextToken") }

    // MARK: The body

    func text(_ member: String) throws(CognitoError) -> String? {
        guard let value = body[member] else { return nil }
        guard let text = value.string else { throw .invalid("\(member) must be a string") }
        return text
    }

    func required(_ member: String) throws(CognitoError) -> String {
        guard let text = try text(member) else { throw .invalid("\(member) is missing") }
        return text
    }
}
