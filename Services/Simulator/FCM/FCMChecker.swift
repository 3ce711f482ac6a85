import Cryptography
import HTTPServer
import JSON

/// A service account that the token endpoint knows.
struct FCMAccount: Sendable {
    let projectID: String
    let clientEmail: String
    let verifyingKey: VerifyingKey
}

/// Checks requests as FCM and Google's token endpoint do. Pure except for the issued tokens.
struct FCMChecker: Sendable {
    private var accounts: [String: FCMAccount] = [:]
    private var tokens = OAuthTokens()

    mutating func add(_ account: FCMAccount) { accounts[account.clientEmail] = account }

    mutating func revokeTokens() { tokens.revokeAll() }

    // MARK: The token endpoint

    private static let grantType = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    private static let scopes = [
        "https://www.googleapis.com/auth/firebase.messaging",
        "https://www.googleapis.com/auth/cloud-platform",
    ]
    private static let clockSkew: Int64 = 300

    /// Answers `POST /token` in OAuth's form. `audiences` are the valid values of `aud`: this endpoint's own
    /// addresses; `lifetime` is the access token's, in seconds.
    mutating func grant(
        _ request: HTTPServerRequest,
        audiences: [String],
        now: Int64,
        lifetime: Int64
    ) -> HTTPServerResponse {
        guard let fields = formFields(request.body) else {
            return OAuthAnswer.error(400, "invalid_request", "Could not parse the form body.")
        }
        guard fields["grant_type"] == Self.grantType else {
            return OAuthAnswer.error(
                400,
                "unsupported_grant_type",
                "Invalid grant_type: it must be the JWT bearer's."
            )
        }
        guard let assertion = fields["assertion"] else {
            return OAuthAnswer.error(
                400,
                "invalid_request",
                "Missing required parameter: assertion"
            )
        }
        let email = Self.issuer(of: assertion)
        guard let account = email.flatMap({ accounts[$0] }) else {
            return OAuthAnswer.error(400, "invalid_grant", "Invalid grant: account not found")
        }
        guard let claims = try? JWT.verify(assertion, with: { _ in account.verifyingKey }).claims
        else { return OAuthAnswer.error(400, "invalid_grant", "Invalid JWT Signature.") }
        guard let audience = claims["aud"]?.string, audiences.contains(audience) else {
            return OAuthAnswer.error(
                400,
                "invalid_grant",
                "Invalid JWT: aud is not this token endpoint."
            )
        }
        guard let issuedAt = claims["iat"]?.integer.map(Int64.init),
            let expiresAt = claims["exp"]?.integer.map(Int64.init),
            expiresAt > now, issuedAt <= now + Self.clockSkew, expiresAt > issuedAt,
            issuedAt >= now - 3600, expiresAt <= issuedAt + 3600
        else {
            return OAuthAnswer.error(
                400,
                "invalid_grant",
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable"
                    + " timeframe. Check your iat and exp values in the JWT claim."
            )
        }
        let scope = claims["scope"]?.string ?? ""
        guard scope.split(separator: " ").contains(where: { Self.scopes.contains(String($0)) })
        else {
            return OAuthAnswer.error(
                400,
                "invalid_scope",
                "Invalid OAuth scope or ID token audience provided."
            )
        }
        let token = tokens.issue(
            to: account.projectID,
            prefix: "ya29.c.",
            now: now,
            lifetime: lifetime
        )
        return .json([
            "access_token": .string(token), "expires_in": .integer(lifetime),
            "token_type": "Bearer",
        ])
    }

    /// Returns the issuer of an assertion, before its signature is verified.
    private static func issuer(of assertion: String) -> String? {
        let parts = assertion.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3, assertion.utf8.count <= JWT.maximumByteCount,
            let claims = try? Base64.decodeURL(String(parts[1]))
        else { return nil }
        return (try? JSONValue.parse(claims))?["iss"]?.string
    }

    // MARK: messages:send

    /// Checks `POST /v1/projects/<project>/messages:send`.
    func check(_ request: HTTPServerRequest, project: String, now: Int64) -> CheckResult {
        CheckResult.of { result throws(Refusal) in
            let holder = tokens.holder(
                ofAuthorization: request.headers["authorization"],
                now: now
            )
            let parsed = try? JSONValue.parse(request.body)
            // These are for the log of received requests. The checks below have their own order.
            let message = parsed?["message"]
            result.token = message?["token"]?.string
            result.topic = message?["topic"]?.string ?? message?["condition"]?.string
            guard let holder else {
                throw Refusal(
                    401,
                    nil,
                    "Request had invalid authentication credentials. Expected OAuth 2 access token."
                )
            }
            guard accounts.values.contains(where: { $0.projectID == project }) else {
                throw Refusal(404, nil, "Requested entity was not found: this project is unknown.")
            }
            guard holder == project else {
                throw Refusal(
                    403,
                    nil,
                    "Permission 'cloudmessaging.messages.create' denied on this project."
                )
            }
            guard let body = parsed, body.object != nil else {
                throw Refusal(400, nil, "Invalid JSON payload received. Expected an object.")
            }
            let normalized: JSONValue
            do throws(FCMViolation) {
                normalized = try FCMType.sendRequest.normalized(body, at: "")
            } catch {
                throw Refusal(400, nil, error.description, field: error.field)
            }
            result.isDryRun = normalized["validate_only"]?.bool ?? false
            guard let message = normalized["message"]?.object else {
                throw Refusal(400, "INVALID_ARGUMENT", "The message is not set.", field: "message")
            }
            try FCMMessageRules.check(message)
        }
    }
}

/// FCM's rules for a message beyond the types of its fields.
enum FCMMessageRules {
    static func check(_ message: JSONObject) throws(Refusal) {
        try checkTarget(message)
        try checkData(message["data"], "message.data")
        try checkData(message["android"]?["data"], "message.android.data")
        if let ttl = message["android"]?["ttl"]?.string.flatMap(FCMType.seconds) {
            guard ttl <= 2_419_200 else {
                throw invalid("ttl is over four weeks", "message.android.ttl")
            }
        }
        let notification = message["android"]?["notification"]
        for name in ["title", "body"] where notification?["\(name)_loc_args"]?.isNull == false {
            guard notification?["\(name)_loc_key"]?.string != nil else {
                throw invalid(
                    "\(name)_loc_args needs \(name)_loc_key",
                    "message.android.notification.\(name)_loc_args"
                )
            }
        }
        if let color = notification?["color"]?.string {
            guard color.utf8.count == 7, color.hasPrefix("#"),
                String(color.dropFirst()).isHexadecimal
            else { throw invalid("color is not #rrggbb", "message.android.notification.color") }
        }
        if let link = message["webpush"]?["fcm_options"]?["link"]?.string {
            guard link.hasPrefix("https://") else {
                throw invalid("link is not https", "message.webpush.fcm_options.link")
            }
        }
        if case .string? = message["name"] {
            throw invalid("name is output only", "message.name")
        }
        try checkSize(message)
    }

    private static func invalid(_ detail: String, _ field: String) -> Refusal {
        Refusal(400, "INVALID_ARGUMENT", detail, field: field)
    }

    private static func checkTarget(_ message: JSONObject) throws(Refusal) {
        let targets = ["token", "topic", "condition", "fid"].filter { message[$0]?.string != nil }
        guard targets.count == 1 else {
            throw invalid(
                "Recipient of the message is not set, or set more than once.",
                "message.token"
            )
        }
        if let token = message["token"]?.string {
            guard token.consists(of: "_-:.", length: 1...4096) else {
                throw invalid(
                    "The registration token is not a valid FCM registration token",
                    "message.token"
                )
            }
        }
        if let topic = message["topic"]?.string {
            guard topic.consists(of: "-_.~%", length: 1...900) else {
                throw invalid("Malformed topic name", "message.topic")
            }
        }
        if let condition = message["condition"]?.string {
            let count = condition.split(separator: "in topics", omittingEmptySubsequences: false)
                .count
            guard 2...6 ~= count else {
                throw invalid("Invalid condition expression provided.", "message.condition")
            }
        }
    }

    private static func checkData(_ data: JSONValue?, _ path: String) throws(Refusal) {
        guard let data = data?.object else { return }
        for key in data.keys
        where ["from", "message_type"].contains(key) || key.hasPrefix("google.")
            || key.hasPrefix("gcm.notification.")
        {
            throw invalid("Invalid data payload key: \(key)", "\(path).\(key)")
        }
    }

    private static func checkSize(_ message: JSONObject) throws(Refusal) {
        let isTopic = message["token"]?.string == nil && message["fid"]?.string == nil
        let limit = isTopic ? 2048 : 4096
        let size =
            byteCount(message["data"]) + byteCount(message["notification"])
            + byteCount(message["android"]?["data"])
            + byteCount(message["android"]?["notification"])
        let appleSize = message["apns"]?["payload"]?.bytes.count ?? 0
        guard size <= limit, appleSize <= 4096 else {
            throw invalid("Message is too big", "message")
        }
    }

    /// Returns the size of keys and values, without JSON's punctuation.
    private static func byteCount(_ value: JSONValue?) -> Int {
        switch value {
        case .object(let members)?:
            members.reduce(0) { $0 + $1.key.utf8.count + byteCount($1.value) }
        case .array(let elements)?: elements.reduce(0) { $0 + byteCount($1) }
        case .string(let text)?: text.utf8.count
        case nil, .null?: 0
        case let scalar?: scalar.bytes.count
        }
    }
}
