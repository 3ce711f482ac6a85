import Cryptography
import Foundation
import HTTPServer
import JSON
import Support
import Synchronization
import Testing

/// An OIDC issuer on this machine. It authenticates nobody: the test says who returns with a code.
final class ConsoleIssuer: Sendable {
    static let clientID = "console"
    static let clientSecret = "s3cret/+%"

    /// A code that is not exchanged yet, and what its request said.
    private struct Code {
        let query: [String: String]
        let claims: JSONObject
    }

    private struct State {
        var codes: [String: Code] = [:]
        var isAway = false
        var origin = ""
    }

    private let key: SigningKey
    private let state = Mutex(State())

    init() throws { key = try SigningKey.generateP256() }

    /// Makes its token endpoint answer 500.
    func goAway(_ isAway: Bool = true) { state.withLock { $0.isAway = isAway } }

    /// Its address, once its server runs.
    var origin: String {
        get { state.withLock(\.origin) }
        set { state.withLock { $0.origin = newValue } }
    }

    func answer(_ request: HTTPServerRequest) throws -> HTTPServerResponse {
        let origin = origin
        return switch request.path {
        case "/.well-known/openid-configuration":
            .json([
                "issuer": .string(origin), "authorization_endpoint": .string(origin + "/authorize"),
                "token_endpoint": .string(origin + "/token"), "jwks_uri": .string(origin + "/jwks"),
                "code_challenge_methods_supported": ["S256"],
                "id_token_signing_alg_values_supported": ["ES256"],
            ])
        case "/jwks": .json(.object(["keys": [try publicJWK(key, "k1")]]))
        case "/token": try token(request, origin)
        default: HTTPServerResponse(status: 404)
        }
    }

    /// Authenticates a person who came by this address.
    ///
    /// - Returns: The code.
    func code(at authorizationURL: String, for claims: JSONObject) throws -> String {
        let query = try Self.query(of: authorizationURL)
        #expect(query["response_type"] == "code" && query["client_id"] == Self.clientID)
        #expect(query["code_challenge_method"] == "S256")
        let code = TestEnvironment.unique("code-")
        state.withLock { $0.codes[code] = Code(query: query, claims: claims) }
        return code
    }

    static func query(of url: String) throws -> [String: String] {
        let items = try #require(URLComponents(string: url)?.queryItems)
        return Dictionary(items.map { ($0.name, $0.value ?? "") }) { first, _ in first }
    }

    /// Exchanges a code once, for the client that proves itself and has the verifier.
    private func token(_ request: HTTPServerRequest, _ origin: String) throws -> HTTPServerResponse
    {
        func refusal(_ error: JSONValue, _ status: Int = 400) -> HTTPServerResponse {
            .json(["error": error], status: status)
        }
        guard !state.withLock({ $0.isAway }) else { return HTTPServerResponse(status: 500) }
        // The secret's special characters are escaped within Basic.
        let pair = Base64.encode(Array("\(Self.clientID):s3cret%2F%2B%25".utf8))
        guard request.header("authorization") == "Basic \(pair)" else {
            return refusal("invalid_client", 401)
        }
        let form = try Self.query(of: "/?" + String(decoding: request.body, as: UTF8.self))
        let code = state.withLock { $0.codes.removeValue(forKey: form["code"] ?? "") }
        let challenge = Base64.encodeURL(sha256(Array((form["code_verifier"] ?? "").utf8)))
        guard form["grant_type"] == "authorization_code", let code,
            code.query["redirect_uri"] == form["redirect_uri"],
            code.query["code_challenge"] == challenge
        else { return refusal("invalid_grant") }
        var claims: JSONObject = [
            "iss": .string(origin), "aud": .string(Self.clientID), "sub": "1",
            "exp": JSONValue(Int(Date().timeIntervalSince1970) + 300),
            "nonce": .string(code.query["nonce"] ?? ""),
        ]
        for (name, value) in code.claims { claims[name] = value }
        return .json([
            "id_token": .string(try JWT.sign(header: ["kid": "k1"], claims: claims, with: key)),
            "access_token": "unused", "token_type": "Bearer",
        ])
    }
}

/// A browser that keeps cookies, without a screen.
struct Browser {
    let origin: String
    private(set) var cookies: [String: String] = [:]

    init(_ origin: String) { self.origin = origin }

    var cookieHeader: String { cookies.map { "\($0.key)=\($0.value)" }.joined(separator: "; ") }

    mutating func set(_ name: String, _ value: String?) { cookies[name] = value }

    mutating func get(_ path: String, _ headers: [String: String] = [:]) async throws -> HTTPAnswer
    {
        try await ask("GET", path, headers, [])
    }

    mutating func post(
        _ path: String,
        _ fields: [String: String],
        _ headers: [String: String] = [:]
    ) async throws -> HTTPAnswer {
        let body = fields.map { "\(Self.escaped($0.key))=\(Self.escaped($0.value))" }
            .joined(separator: "&")
        let type = ["Content-Type": "application/x-www-form-urlencoded"]
        return try await ask("POST", path, headers.merging(type) { $1 }, Array(body.utf8))
    }

    /// Posts a form of another type than the usual one.
    mutating func post(
        _ path: String,
        _ body: [UInt8],
        type: String,
        _ headers: [String: String] = [:]
    ) async throws -> HTTPAnswer {
        try await ask("POST", path, headers.merging(["Content-Type": type]) { $1 }, body)
    }

    private mutating func ask(
        _ method: String,
        _ path: String,
        _ headers: [String: String],
        _ bytes: [UInt8]
    ) async throws -> HTTPAnswer {
        var headers = headers
        if !cookies.isEmpty { headers["Cookie"] = cookieHeader }
        let answer = try await http(method, origin + path, headers: headers, bytes: bytes)
        for line in answer.headers where line.name == "set-cookie" { store(line.value) }
        return answer
    }

    private mutating func store(_ line: String) {
        let parts = line.split(separator: ";").map { $0.trimmingCharacters(in: .whitespaces) }
        guard let pair = parts.first, let equals = pair.firstIndex(of: "=") else { return }
        let name = String(pair[..<equals])
        let isDeleted = parts.contains("Max-Age=0")
        cookies[name] = isDeleted ? nil : String(pair[pair.index(after: equals)...])
    }

    static func escaped(_ text: String) -> String {
        text.utf8.map { byte in
            let isPlain = Character(Unicode.Scalar(byte)).isLetter && byte < 0x80
            return isPlain ? String(Unicode.Scalar(byte)) : "%" + Hex.encode([byte])
        }.joined()
    }
}

/// The elements of a page, by a parser of the markup that the console writes.
struct PageElements {
    struct Element {
        var name: String
        var attributes: [String: String]
    }

    private(set) var elements: [Element] = []

    init(_ markup: String) {
        var rest = Substring(markup)
        while let open = rest.firstIndex(of: "<") {
            rest = rest[rest.index(after: open)...]
            guard let first = rest.first, first.isLetter else { continue }
            let name = rest.prefix { $0.isLetter || $0.isNumber }
            rest = rest.dropFirst(name.count)
            elements.append(Element(name: name.lowercased(), attributes: Self.attributes(&rest)))
        }
    }

    /// Reads attributes up to the tag's end.
    private static func attributes(_ rest: inout Substring) -> [String: String] {
        var found: [String: String] = [:]
        while true {
            rest = rest.drop { $0.isWhitespace || $0 == "/" }
            guard let next = rest.first, next != ">" else {
                rest = rest.dropFirst()
                return found
            }
            let name = rest.prefix { !$0.isWhitespace && $0 != "=" && $0 != ">" && $0 != "/" }
            rest = rest.dropFirst(max(1, name.count))
            guard rest.first == "=" else {
                found[name.lowercased()] = ""
                continue
            }
            rest = rest.dropFirst()
            let quote = rest.first
            guard let quote, quote == "\"" || quote == "'" else {
                let value = rest.prefix { !$0.isWhitespace && $0 != ">" }
                rest = rest.dropFirst(value.count)
                found[name.lowercased()] = String(value)
                continue
            }
            let value = rest.dropFirst().prefix { $0 != quote }
            rest = rest.dropFirst(value.count + 2)
            found[name.lowercased()] = String(value)
        }
    }
}
