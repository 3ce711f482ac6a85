import Cryptography
import HTTPServer
import JSON
import XML

/// An app that may fetch WNS tokens: a Store package, or with a tenant an Entra ID registration.
struct WNSClient: Sendable {
    let clientID: String
    let clientSecret: String
    let tenant: String?
}

/// Checks requests as WNS and its two token endpoints do. Pure except for the issued tokens.
struct WNSChecker: Sendable {
    private var clients: [String: WNSClient] = [:]
    private var tokens = OAuthTokens()

    mutating func add(_ client: WNSClient) { clients[client.clientID] = client }

    mutating func revokeTokens() { tokens.revokeAll() }

    // MARK: The token endpoints

    /// Answers `POST /accesstoken.srf`: `expires_in` is a number there.
    mutating func grantLive(
        _ request: HTTPServerRequest,
        now: Int64,
        lifetime: Int64
    ) -> HTTPServerResponse {
        switch client(for: request, scope: "notify.windows.com") {
        case .failure(let refusal): return answer(refusal)
        case .success(let client):
            let token = tokens.issue(
                to: client.clientID,
                prefix: "EgAb",
                now: now,
                lifetime: lifetime
            )
            return .json([
                "token_type": "bearer", "access_token": .string(token),
                "expires_in": .integer(lifetime),
            ])
        }
    }

    /// Answers `POST /<tenant>/oauth2/v2.0/token`: `expires_in` is a string there.
    mutating func grantEntra(
        _ request: HTTPServerRequest,
        tenant: String,
        now: Int64,
        lifetime: Int64
    ) -> HTTPServerResponse {
        switch client(for: request, scope: "https://wns.windows.com/.default") {
        case .failure(let refusal): return answer(refusal)
        case .success(let client):
            guard client.tenant == tenant else {
                return OAuthAnswer.error(
                    400,
                    "invalid_request",
                    "AADSTS90002: Tenant not found for this application."
                )
            }
            let token = tokens.issue(
                to: client.clientID,
                prefix: "eyJ0",
                now: now,
                lifetime: lifetime
            )
            return .json([
                "token_type": "Bearer", "expires_in": .string("\(lifetime)"),
                "ext_expires_in": .string("\(lifetime)"),
                "expires_on": .string("\(now + lifetime)"), "not_before": .string("\(now)"),
                "access_token": .string(token),
            ])
        }
    }

    private func answer(_ refusal: Refusal) -> HTTPServerResponse {
        OAuthAnswer.error(refusal.status, refusal.reason ?? "", refusal.detail ?? "")
    }

    private func client(
        for request: HTTPServerRequest,
        scope: String
    ) -> Result<WNSClient, Refusal> {
        guard let type = request.headers["content-type"],
            type.lowercased().hasPrefix("application/x-www-form-urlencoded"),
            let fields = formFields(request.body)
        else { return .failure(Refusal(400, "invalid_request", "The body is not a form.")) }
        guard fields["grant_type"] == "client_credentials" else {
            return .failure(Refusal(400, "unsupported_grant_type", "Wrong grant_type."))
        }
        guard let client = fields["client_id"].flatMap({ clients[$0] }),
            let secret = fields["client_secret"], constantTimeEqual(secret, client.clientSecret)
        else { return .failure(Refusal(400, "invalid_client", "Invalid client id or secret.")) }
        guard fields["scope"] == scope else {
            return .failure(Refusal(400, "invalid_scope", "The scope is not this endpoint's."))
        }
        return .success(client)
    }

    // MARK: Channels

    /// Checks a request to a channel URI. If the URI has `owner=<client id>`, the channel belongs
    /// to that app alone. If the path has `/phone/`, the channel is a phone's.
    func check(_ request: HTTPServerRequest, now: Int64) -> CheckResult {
        CheckResult.of { result throws(Refusal) in
            result.token = request.rawTarget
            guard request.method == .post else {
                throw Refusal(405, nil, "only POST sends a notification")
            }
            guard
                let holder = tokens.holder(
                    ofAuthorization: request.headers["authorization"],
                    now: now
                )
            else { throw Refusal(401, nil, "the access token is missing, unknown or expired") }
            if let owner = request.queryValue("owner"), owner != holder {
                throw Refusal(403, nil, "the channel belongs to another app")
            }
            guard !request.headers.contains("transfer-encoding"),
                request.headers.contains("content-length")
            else { throw Refusal(400, nil, "Content-Length is required, chunks are not taken") }
            guard request.body.count <= 5000 else {
                throw Refusal(413, nil, "the payload is over 5000 bytes")
            }
            let type = try checkType(request.headers)
            try checkOptions(request, type: type)
            try checkPayload(request.body, type: type)
        }
    }

    private func checkType(_ headers: HTTPHeaders) throws(Refusal) -> String {
        guard let type = headers["x-wns-type"],
            ["wns/toast", "wns/tile", "wns/badge", "wns/raw"].contains(type)
        else { throw Refusal(400, nil, "X-WNS-Type is missing or unknown") }
        let wanted = type == "wns/raw" ? "application/octet-stream" : "text/xml"
        let given = headers["content-type"]?.lowercased().split(separator: ";").first
        guard given.map(String.init) == wanted else {
            throw Refusal(400, nil, "Content-Type does not match X-WNS-Type")
        }
        return type
    }

    private func checkOptions(_ request: HTTPServerRequest, type: String) throws(Refusal) {
        let headers = request.headers
        let policy = headers["x-wns-cache-policy"]
        if let policy, !["cache", "no-cache"].contains(policy) {
            throw Refusal(400, nil, "X-WNS-Cache-Policy is neither cache nor no-cache")
        }
        if let wish = headers["x-wns-requestforstatus"], !["true", "false"].contains(wish) {
            throw Refusal(400, nil, "X-WNS-RequestForStatus is neither true nor false")
        }
        if let ttl = headers["x-wns-ttl"] {
            guard ttl.isDigits, let seconds = Int64(ttl) else {
                throw Refusal(400, nil, "X-WNS-TTL is not a whole number of seconds")
            }
            guard seconds > 0 || policy == "no-cache" else {
                throw Refusal(400, nil, "Ttl value conflicts with X-WNS-Cache-Policy")
            }
        }
        for name in ["X-WNS-Tag", "X-WNS-Group"] {
            guard let value = headers[name] else { continue }
            guard value.consists(length: 1...16) else {
                throw Refusal(400, nil, "\(name) is not 1 to 16 letters and digits")
            }
        }
        if let priority = headers["x-wns-priority"], !["1", "2", "3", "4"].contains(priority) {
            throw Refusal(400, nil, "X-WNS-PRIORITY is not 1, 2, 3 or 4")
        }
        if headers.contains("x-wns-suppresspopup"), !request.pathSegments.contains("phone") {
            throw Refusal(400, nil, "X-WNS-SuppressPopup is for phone channels only")
        }
    }

    private static let glyphs: Set<String> = [
        "none", "activity", "alarm", "alert", "attention", "available", "away", "busy", "error",
        "newMessage", "paused", "playing", "unavailable",
    ]

    private func checkPayload(_ body: [UInt8], type: String) throws(Refusal) {
        if type == "wns/raw" {
            guard !body.isEmpty else { throw Refusal(400, nil, "a raw payload must not be empty") }
            return
        }
        guard let root = try? XMLElement.parse(body, maximumDepth: 32, maximumBytes: 5000) else {
            throw Refusal(400, nil, "the payload is not well-formed XML")
        }
        guard "wns/" + root.name == type else {
            throw Refusal(400, nil, "the payload's root does not match X-WNS-Type")
        }
        if type == "wns/badge" {
            guard let value = root.attribute("value"),
                Self.glyphs.contains(value) || value.isDigits
            else { throw Refusal(400, nil, "the badge's value is neither a number nor a glyph") }
        } else if root.child("visual")?.child("binding")?.attribute("template") == nil {
            throw Refusal(400, nil, "the payload has no visual with a binding and its template")
        }
    }
}
