package import Cryptography
package import EventLoop
internal import HTTPTransport
internal import JSON
import Storage

/// The keys fetched from an issuer.
package struct FetchedKeys: Sendable {
    package let set: JWKSet
    /// How long they are fresh.
    package let freshFor: Duration

    package init(set: JWKSet, freshFor: Duration) {
        self.set = set
        self.freshFor = freshFor
    }
}

/// The reason why an issuer's keys, or another answer of it, could not be fetched.
package enum JWKSFault: Error, Sendable, Equatable {
    /// The address is not https, or its host is not allowed.
    case notAllowed
    /// The issuer redirects. Redirects are not followed.
    case redirect
    case status(Int)
    case tooLarge
    case timeout
    /// No connection, or an untrusted certificate; the reason.
    case unreachable(String)
    /// The answer is not a JWK set; the reason.
    case noSet(String)
    /// A JWK set without a usable key; the reason for each.
    case noKeys([String])

    package var metricLabel: String {
        switch self {
        case .notAllowed: "not_allowed"
        case .redirect: "redirect"
        case .status: "status"
        case .tooLarge: "too_large"
        case .timeout: "timeout"
        case .unreachable: "unreachable"
        case .noSet: "no_set"
        case .noKeys: "no_keys"
        }
    }

    /// The description for the operator.
    package var text: String {
        switch self {
        case .notAllowed:
            "it may not be asked: issuers are asked over https, at the places of JWKS_HOSTS, or where"
                + " that is not set at public addresses"
        case .redirect: "it redirects elsewhere, which is not followed"
        case .status(let status): "it answers \(status)"
        case .tooLarge: "it answers with more than \(JWKSSource.maximumBytes >> 10) KiB"
        case .timeout: "it does not answer within \(JWKSSource.timeout)"
        case .unreachable(let reason): "it cannot be reached: \(reason)"
        case .noSet(let reason): "it answers with no JWK set: \(reason)"
        case .noKeys(let reasons):
            "it shows no key that could be used" + (reasons.first.map { ": \($0)" } ?? "")
        }
    }
}

/// Fetches an issuer's keys: over https, at an allowed address, within limits.
package struct JWKSSource: Sendable {
    static let maximumBytes = 256 << 10
    static let timeout = Duration.seconds(10)
    private static let maximumDepth = 16
    private static let maximumValues = 10_000

    /// - Parameter url: The address in a login.
    package let fetch: @Sendable (_ url: String) async -> Result<FetchedKeys, JWKSFault>

    init(fetch: @escaping @Sendable (_ url: String) async -> Result<FetchedKeys, JWKSFault>) {
        self.fetch = fetch
    }

    /// Fetches over temporary connections: an issuer is asked once an hour or so.
    package init(_ configuration: JWKSConfiguration, on loop: EventLoop) {
        self.init(configuration, timeout: Self.timeout, on: loop)
    }

    init(_ configuration: JWKSConfiguration, timeout: Duration, on loop: EventLoop) {
        let transport = IssuerTransport(
            configuration,
            maximumBytes: Self.maximumBytes,
            timeout: timeout,
            on: loop
        )
        fetch = { url in
            switch await transport.call(method: "GET", url) {
            case .success(let response): Self.parse(response)
            case .failure(let fault): .failure(fault)
            }
        }
    }

    /// Whether an address may be fetched, judging by its name.
    package static func permits(_ url: String, _ configuration: JWKSConfiguration) -> Bool {
        IssuerTransport.isHTTPS(url) && configuration.hosts.permits(url)
    }

    static func parse(_ response: HTTPResponse) -> Result<FetchedKeys, JWKSFault> {
        guard response.status == 200 else {
            return .failure(
                (300..<400).contains(response.status) ? .redirect : .status(response.status)
            )
        }
        switch keys(in: response.body) {
        case .failure(let fault): return .failure(fault)
        case .success(let set):
            let freshFor = freshness(response.header("cache-control"))
            return .success(FetchedKeys(set: set, freshFor: freshFor))
        }
    }

    /// Parses a JWK set from an issuer, or from a file.
    package static func keys(in text: [UInt8]) -> Result<JWKSet, JWKSFault> {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue.parse(
                text,
                maximumDepth: maximumDepth,
                maximumBytes: maximumBytes,
                maximumValues: maximumValues
            )
        } catch {
            return .failure(.noSet("it is not JSON"))
        }
        do throws(CryptographyError) {
            let set = try JWKSet(json)
            return set.keys.isEmpty ? .failure(.noKeys(set.passedOver)) : .success(set)
        } catch {
            return .failure(.noSet(error.description))
        }
    }

    // MARK: Freshness of keys

    static let usualFreshness = Duration.seconds(3600)
    private static let freshnesses = 300...86_400

    /// Returns the lifetime from `Cache-Control`, within limits: an issuer that forbids caching
    /// would otherwise be asked for each token.
    static func freshness(_ cacheControl: String?) -> Duration {
        guard let cacheControl else { return usualFreshness }
        var seconds: Int?
        for directive in cacheControl.split(separator: ",") {
            let parts = directive.split(separator: "=", maxSplits: 1)
            let name = parts.first.map { trimmed($0).lowercased() }
            switch name {
            case "no-store", "no-cache": seconds = 0
            case "max-age":
                let digits = parts.count == 2 ? trimmed(parts[1]).filter { $0 != "\"" } : ""
                guard !digits.isEmpty, digits.utf8.allSatisfy({ (48...57).contains($0) }) else {
                    continue
                }
                // A number that `Int` cannot hold counts as the maximum.
                seconds = min(seconds ?? .max, Int(digits) ?? freshnesses.upperBound)
            default: continue
            }
        }
        guard let seconds else { return usualFreshness }
        return .seconds(min(max(seconds, freshnesses.lowerBound), freshnesses.upperBound))
    }

    private static func trimmed(_ text: Substring) -> String {
        let front = text.drop { $0 == " " || $0 == "\t" }
        guard let last = front.lastIndex(where: { $0 != " " && $0 != "\t" }) else { return "" }
        return String(front[...last])
    }
}
