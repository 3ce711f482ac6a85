import Cryptography
import HTTPServer
import JSON

/// A signing key that APNs knows.
struct APNsKey: Sendable {
    let keyID: String
    let teamID: String
    let verifyingKey: VerifyingKey
    /// `production` or `sandbox` for a key that Apple bound to one; nil: valid in both.
    var environment: String?
}

/// The state of APNs for one connection.
struct APNsConnection: Sendable, Equatable {
    /// The team of the first valid token: this connection serves no other.
    var team: String?
    /// The provider token in use, and when it was first seen here, in seconds since 1970.
    var token: String?
    var tokenSince: Int64 = 0

    /// Whether more than one stream may be open at a time.
    var isTrusted: Bool { team != nil }
}

/// Checks a request as APNs does: the headers, then the path, then the provider token, then the payload. Pure
/// except for a cache of verified signatures.
///
/// Apple does not document the order. This is the order of Pushy's mock server.
struct APNsChecker: Sendable {
    private struct ProviderToken: Sendable {
        let team: String
        let issuedAt: Int64
        let environment: String?
    }

    static let maximumTokenAge: Int64 = 3600
    static let minimumTokenInterval: Int64 = 1200
    /// The largest time by which a sender's clock may be ahead of ours.
    static let clockSkew: Int64 = 300

    private var keys: [String: APNsKey] = [:]
    private var verified: [String: ProviderToken] = [:]

    mutating func add(_ key: APNsKey) {
        keys[key.keyID] = key
        verified = [:]
    }

    mutating func check(
        _ request: HTTPServerRequest,
        environment: String,
        now: Int64,
        connection: inout APNsConnection
    ) -> CheckResult {
        CheckResult.of { result throws(Refusal) in
            if request.pathSegments.count == 3, request.pathSegments[1] == "device" {
                result.token = request.pathSegments[2]
            }
            result.topic = request.headers["apns-topic"]
            try checkNoDuplicates(request)
            try checkID(request)
            guard request.method == .post else { throw Refusal(405, "MethodNotAllowed") }
            let certificateTopic = try checkTopic(request, &result)
            if let collapseID = request.headers["apns-collapse-id"] {
                guard 1...64 ~= collapseID.utf8.count else { throw Refusal(400, "BadCollapseId") }
            }
            if let expiration = request.headers["apns-expiration"] {
                guard expiration.isDigits, Int64(expiration) != nil else {
                    throw Refusal(400, "BadExpirationDate")
                }
            }
            let priority = request.headers["apns-priority"] ?? "10"
            guard ["10", "5", "1"].contains(priority) else { throw Refusal(400, "BadPriority") }
            let type = try checkType(request, result.topic)
            try checkPath(request, result.token)
            if request.clientCertificateSubject == nil {
                try checkToken(request, environment, now, &connection)
            } else if connection.team == nil {
                connection.team = certificateTopic
            }
            try checkPayload(request.body, type: type, priority: priority)
        }
    }

    private func checkNoDuplicates(_ request: HTTPServerRequest) throws(Refusal) {
        let names = request.headers.map { $0.name.lowercased() }
            .filter { $0.hasPrefix("apns-") || $0 == "authorization" }
        guard Set(names).count == names.count else { throw Refusal(400, "DuplicateHeaders") }
    }

    private func checkID(_ request: HTTPServerRequest) throws(Refusal) {
        guard let id = request.headers["apns-id"] else { return }
        let groups = id.split(separator: "-", omittingEmptySubsequences: false)
        guard groups.map(\.utf8.count) == [8, 4, 4, 4, 12],
            groups.allSatisfy({ String($0).isHexadecimal })
        else { throw Refusal(400, "BadMessageId") }
    }

    /// Validates the topic. Returns the topic of the client certificate if it names one, else the
    /// header's.
    private func checkTopic(
        _ request: HTTPServerRequest,
        _ result: inout CheckResult
    ) throws(Refusal) -> String {
        let subject = request.clientCertificateSubject
        let certificateTopic = subject.flatMap(Self.userID)
        // With a certificate of a single topic the header may be missing.
        guard let topic = result.topic ?? certificateTopic else {
            throw Refusal(400, "MissingTopic")
        }
        guard topic.consists(of: ".-_", length: 1...255) else { throw Refusal(400, "BadTopic") }
        result.topic = topic
        if let certificateTopic {
            guard topic == certificateTopic || topic.hasPrefix(certificateTopic + ".") else {
                throw Refusal(400, "TopicDisallowed")
            }
        }
        return certificateTopic ?? topic
    }

    /// Returns the `UID` of a distinguished name in the form of RFC 2253.
    static func userID(of subject: String) -> String? {
        for part in subject.split(whereSeparator: { $0 == "," || $0 == "+" })
        where part.hasPrefix("UID=") { return String(part.dropFirst(4)) }
        return nil
    }

    private static let topicSuffixes: [String: String] = [
        "alert": "", "background": "", "mdm": "", "voip": ".voip",
        "complication": ".complication", "fileprovider": ".pushkit.fileprovider",
        "location": ".location-query", "liveactivity": ".push-type.liveactivity",
        "pushtotalk": ".voip-ptt", "widgets": ".push-type.widgets",
        "controls": ".push-type.controls",
    ]

    private func checkType(
        _ request: HTTPServerRequest,
        _ topic: String?
    ) throws(Refusal) -> String? {
        guard let type = request.headers["apns-push-type"] else { return nil }
        guard let suffix = Self.topicSuffixes[type] else { throw Refusal(400, "InvalidPushType") }
        guard let topic, topic.hasSuffix(suffix), topic.utf8.count > suffix.utf8.count else {
            throw Refusal(400, "BadTopic")
        }
        return type
    }

    private func checkPath(_ request: HTTPServerRequest, _ token: String?) throws(Refusal) {
        guard request.pathSegments.count == 3, request.pathSegments[0] == "3", let token else {
            let isBare = request.pathSegments == ["3", "device"]
            throw isBare ? Refusal(400, "MissingDeviceToken") : Refusal(404, "BadPath")
        }
        guard !token.isEmpty else { throw Refusal(400, "MissingDeviceToken") }
        guard token.isHexadecimal, token.utf8.count % 2 == 0, token.utf8.count <= 400 else {
            throw Refusal(400, "BadDeviceToken")
        }
    }

    // MARK: The provider token

    private mutating func checkToken(
        _ request: HTTPServerRequest,
        _ environment: String,
        _ now: Int64,
        _ connection: inout APNsConnection
    ) throws(Refusal) {
        guard let authorization = request.headers["authorization"] else {
            throw Refusal(403, "MissingProviderToken")
        }
        let parts = authorization.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else {
            throw Refusal(403, "MissingProviderToken")
        }
        let text = String(parts[1])
        let token = try verify(text)
        guard token.issuedAt <= now + Self.clockSkew else {
            throw Refusal(403, "InvalidProviderToken", "iat is in the future")
        }
        guard token.issuedAt >= now - Self.maximumTokenAge else {
            throw Refusal(403, "ExpiredProviderToken")
        }
        if let bound = token.environment, bound != environment {
            throw Refusal(403, "BadEnvironmentKeyIdInToken")
        }
        if let team = connection.team, team != token.team {
            throw Refusal(403, "InvalidProviderToken", "another team's on this connection")
        }
        if let current = connection.token, current != text {
            guard now - connection.tokenSince >= Self.minimumTokenInterval else {
                throw Refusal(429, "TooManyProviderTokenUpdates")
            }
        }
        if connection.token != text {
            connection.token = text
            connection.tokenSince = now
        }
        connection.team = token.team
    }

    private mutating func verify(_ text: String) throws(Refusal) -> ProviderToken {
        if let known = verified[text] { return known }
        let keys = keys
        guard
            let (header, claims) = try? JWT.verify(
                text,
                with: { header in header["kid"]?.string.flatMap { keys[$0]?.verifyingKey } }
            ),
            let key = header["kid"]?.string.flatMap({ keys[$0] }),
            header["alg"] == "ES256"
        else { throw Refusal(403, "InvalidProviderToken", "signature, alg or kid") }
        guard case .integer(let issuedAt) = claims["iat"] else {
            throw Refusal(403, "InvalidProviderToken", "iat is not an integer")
        }
        guard claims["iss"]?.string == key.teamID else {
            throw Refusal(403, "InvalidProviderToken", "iss is not the key's team")
        }
        let token = ProviderToken(
            team: key.teamID,
            issuedAt: issuedAt,
            environment: key.environment
        )
        // A sender has a handful of tokens. If there are more, all are dropped, as verifying a
        // signature again is cheap.
        if verified.count >= 1000 { verified = [:] }
        verified[text] = token
        return token
    }

    // MARK: The payload

    private func checkPayload(
        _ body: [UInt8],
        type: String?,
        priority: String
    ) throws(Refusal) {
        guard !body.isEmpty else { throw Refusal(400, "PayloadEmpty") }
        guard body.count <= (type == "voip" ? 5120 : 4096) else {
            throw Refusal(413, "PayloadTooLarge")
        }
        guard let payload = (try? JSONValue.parse(body))?.object else {
            throw Refusal(400, "PayloadEmpty", "not a JSON object")
        }
        guard type == "background" else { return }
        let aps = payload["aps"]
        guard priority != "10" else {
            throw Refusal(400, "BadPriority", "background wants priority 5")
        }
        guard aps?["alert"] == nil, aps?["badge"] == nil, aps?["sound"] == nil else {
            throw Refusal(400, "BadPriority", "background has no alert, badge or sound")
        }
        guard aps?["content-available"]?.integer == 1 else {
            throw Refusal(400, "InvalidPushType", "background wants content-available: 1")
        }
    }
}
