internal import Cryptography
package import EventLoop
internal import HTTPTransport
internal import JSON

/// The addresses of an OIDC issuer, as its discovery document has them.
package struct IssuerEndpoints: Sendable, Equatable {
    package var authorizationURL: String
    package var tokenURL: String
    package var jwksURL: String
    /// Whether a client's secret is sent by HTTP Basic; otherwise it is sent in the form.
    package var isSecretInHeader: Bool
}

/// Why an issuer's addresses could not be discovered.
package enum DiscoveryFault: Error, Sendable, Equatable {
    case notFetched(JWKSFault)
    /// The document is not one of this issuer, or lacks something; a sentence.
    case unusable(String)

    /// The description for the operator.
    package var text: String {
        switch self {
        case .notFetched(let fault): fault.text
        case .unusable(let reason): reason
        }
    }
}

/// A code with which an operator returned from an issuer, and what its exchange needs.
package struct CodeExchange: Sendable {
    package var tokenURL: String
    package var clientID: String
    /// `nil`: a public client.
    package var clientSecret: String?
    package var isSecretInHeader: Bool
    package var code: String
    package var redirectURI: String
    /// PKCE's verifier.
    package var verifier: String

    package init(
        tokenURL: String,
        clientID: String,
        clientSecret: String?,
        isSecretInHeader: Bool,
        code: String,
        redirectURI: String,
        verifier: String
    ) {
        self.tokenURL = tokenURL
        self.clientID = clientID
        self.clientSecret = clientSecret
        self.isSecretInHeader = isSecretInHeader
        self.code = code
        self.redirectURI = redirectURI
        self.verifier = verifier
    }

    /// The form, and the header with the secret.
    ///
    /// - SeeAlso: RFC 6749, sections 2.3.1 and 4.1.3; RFC 7636, section 4.5.
    var request: (form: String, authorization: String?) {
        var fields = [
            ("grant_type", "authorization_code"), ("code", code), ("redirect_uri", redirectURI),
            ("code_verifier", verifier),
        ]
        guard let clientSecret, isSecretInHeader else {
            fields.append(("client_id", clientID))
            if let clientSecret { fields.append(("client_secret", clientSecret)) }
            return (FormText.of(fields), nil)
        }
        let pair = FormText.escaped(clientID) + ":" + FormText.escaped(clientSecret)
        return (FormText.of(fields), "Basic " + Base64.encode(Array(pair.utf8)))
    }
}

/// Why a code was not exchanged for a token.
package enum ExchangeFault: Error, Sendable, Equatable {
    case unavailable(JWKSFault)
    /// The issuer refused the code; its `error`, if it is a usable word.
    case refused(String?)
    /// The issuer's answer has no ID token.
    case noToken

    /// The description for the log.
    package var text: String {
        switch self {
        case .unavailable(let fault): fault.text
        case .refused(let error): "it refuses the code: \(error ?? "without a reason")"
        case .noToken: "it answers without an ID token"
        }
    }
}

/// Asks OIDC issuers for their addresses, and for the tokens of operators.
package struct IssuerClient: Sendable {
    static let maximumBytes = 256 << 10
    private static let maximumDepth = 16

    private let transport: IssuerTransport

    package init(_ configuration: JWKSConfiguration, on loop: EventLoop) {
        transport = IssuerTransport(
            configuration,
            maximumBytes: Self.maximumBytes,
            timeout: JWKSSource.timeout,
            on: loop
        )
    }

    // MARK: Discovery

    /// Fetches an issuer's discovery document.
    ///
    /// - SeeAlso: OpenID Connect Discovery 1.0, section 4.
    package func discover(
        _ issuer: String
    ) async -> Result<IssuerEndpoints, DiscoveryFault> {
        let base = issuer.hasSuffix("/") ? String(issuer.dropLast()) : issuer
        let url = base + "/.well-known/openid-configuration"
        switch await transport.call(method: "GET", url) {
        case .failure(let fault): return .failure(.notFetched(fault))
        case .success(let response): return Self.endpoints(in: response, of: issuer)
        }
    }

    static func endpoints(
        in response: HTTPResponse,
        of issuer: String
    ) -> Result<IssuerEndpoints, DiscoveryFault> {
        guard response.status == 200 else {
            let isRedirect = (300..<400).contains(response.status)
            return .failure(.notFetched(isRedirect ? .redirect : .status(response.status)))
        }
        guard let document = object(in: response.body) else {
            return .failure(.unusable("its discovery document is not a JSON object"))
        }
        guard document["issuer"]?.string?.isSame(as: issuer) == true else {
            let said = document["issuer"]?.string ?? "none"
            return .failure(.unusable("its discovery document names another issuer: \(said)"))
        }
        var urls: [String] = []
        for name in ["authorization_endpoint", "token_endpoint", "jwks_uri"] {
            guard let url = document[name]?.string, isAddress(url) else {
                return .failure(.unusable("its discovery document has no https address as \(name)"))
            }
            urls.append(url)
        }
        if let methods = texts(document["code_challenge_methods_supported"]),
            !methods.contains("S256")
        {
            return .failure(.unusable("it does not support PKCE with S256"))
        }
        if let algorithms = texts(document["id_token_signing_alg_values_supported"]),
            algorithms.allSatisfy({ JWTAlgorithm(rawValue: $0) == nil })
        {
            return .failure(.unusable("it signs ID tokens by neither ES256 nor RS256"))
        }
        let ways = texts(document["token_endpoint_auth_methods_supported"])
        return .success(
            IssuerEndpoints(
                authorizationURL: urls[0],
                tokenURL: urls[1],
                jwksURL: urls[2],
                isSecretInHeader: ways.map { ways in
                    ways.contains("client_secret_basic") || !ways.contains("client_secret_post")
                } ?? true
            )
        )
    }

    private static func isAddress(_ url: String) -> Bool {
        IssuerTransport.isHTTPS(url) && url.utf8.count <= LoginLimits.urlBytes
            && url.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } && !url.contains("#")
    }

    private static func texts(_ value: JSONValue?) -> [String]? {
        value?.array?.compactMap(\.string)
    }

    // MARK: Codes

    /// Exchanges a code for an ID token.
    ///
    /// - Returns: The token, not verified.
    package func exchange(_ exchange: CodeExchange) async -> Result<String, ExchangeFault> {
        let (form, authorization) = exchange.request
        var headers = [HTTPField("content-type", "application/x-www-form-urlencoded")]
        if let authorization { headers.append(HTTPField("authorization", authorization)) }
        let result = await transport.call(
            method: "POST",
            exchange.tokenURL,
            headers: headers,
            body: Array(form.utf8)
        )
        switch result {
        case .failure(let fault): return .failure(.unavailable(fault))
        case .success(let response): return Self.token(in: response)
        }
    }

    static func token(in response: HTTPResponse) -> Result<String, ExchangeFault> {
        let object = object(in: response.body)
        switch response.status {
        case 200:
            guard let token = object?["id_token"]?.string else { return .failure(.noToken) }
            return .success(token)
        case 400, 401, 403:
            let error = object?["error"]?.string
            return .failure(.refused(error.flatMap { isWord($0) ? $0 : nil }))
        case 300..<400: return .failure(.unavailable(.redirect))
        default: return .failure(.unavailable(.status(response.status)))
        }
    }

    /// Whether a text is an error code of OAuth, to be shown to a person.
    package static func isWord(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                byte == UInt8(ascii: "_") || byte == UInt8(ascii: "-")
                    || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            }
    }

    private static func object(in body: [UInt8]) -> JSONObject? {
        let json = try? JSONValue.parse(
            body,
            maximumDepth: maximumDepth,
            maximumBytes: maximumBytes,
            maximumValues: 10_000
        )
        return json?.object
    }
}

/// Text as `application/x-www-form-urlencoded`, for forms and queries.
package enum FormText {
    package static func of(_ fields: [(String, String)]) -> String {
        fields.map { escaped($0) + "=" + escaped($1) }.joined(separator: "&")
    }

    /// Escapes all bytes but the unreserved ones of RFC 3986.
    package static func escaped(_ text: String) -> String {
        var escaped = ""
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
                UInt8(ascii: "_"), UInt8(ascii: "~"):
                escaped.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                let digits = String(byte, radix: 16, uppercase: true)
                escaped += (byte < 16 ? "%0" : "%") + digits
            }
        }
        return escaped
    }
}
