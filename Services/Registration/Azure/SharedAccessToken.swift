import Cryptography
import HTTPServer
import JSON
import PushCore

/// `Authorization: SharedAccessSignature sr=…&sig=…&se=…&skn=…`, Azure Notification Hubs' proof of a key.
///
/// Clients write `sr` in different forms, so the signature is verified over the raw string, and then the
/// resource is compared with the request.
struct SharedAccessToken: Equatable, Sendable {
    /// The raw string.
    let resource: String
    let expiry: String
    let signature: String
    let keyName: String

    private static let maximumBytes = 8192

    /// - Returns: `nil` for another scheme, or if a field is missing, repeated or invalid.
    init?(authorization: String?) {
        guard let authorization, authorization.utf8.count <= Self.maximumBytes else { return nil }
        let parts = authorization.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "sharedaccesssignature" else { return nil }
        var fields: ExactStringMap<String> = [:]
        for field in parts[1].split(separator: "&") {
            let pair = field.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = pair[0].drop { $0 == " " }.lowercased()
            guard pair.count == 2, fields[name] == nil else { return nil }
            fields[name] = String(pair[1])
        }
        guard let resource = fields["sr"], let expiry = fields["se"],
            let signature = fields["sig"].flatMap(percentDecoded),
            let keyName = fields["skn"].flatMap(percentDecoded),
            (1...15).contains(expiry.utf8.count),
            expiry.utf8.allSatisfy({ (48...57).contains($0) })
        else { return nil }
        self.resource = resource
        self.expiry = expiry
        self.signature = signature
        self.keyName = keyName
    }

    /// Whether `key` made the signature. In constant time.
    func isSigned(by key: String) -> Bool {
        let expected = hmacSHA256(key: Array(key.utf8), Array("\(resource)\n\(expiry)".utf8))
        return constantTimeEqual(
            Array(signature.utf8),
            Array(Base64.encode(expected).utf8)
        )
    }

    func isExpired(at now: Instant) -> Bool {
        guard let seconds = Int64(expiry) else { return true }
        return seconds <= now.seconds
    }

    /// Whether the token's resource is the request's address, or a parent of it by whole segments.
    /// Scheme, port, query and case are ignored.
    func covers(host: String, path: [String]) -> Bool {
        guard let address = percentDecoded(resource) else { return false }
        var rest = address[...]
        if let scheme = rest.firstRange(of: "://") { rest = rest[scheme.upperBound...] }
        rest = rest.prefix { $0 != "?" && $0 != "#" }
        let authority = rest.prefix { $0 != "/" }
        guard !authority.isEmpty,
            Self.hostName(authority) == Self.hostName(host[...])
        else { return false }
        let segments = rest.dropFirst(authority.count).split(separator: "/").map {
            (percentDecoded(String($0)) ?? String($0)).lowercased()
        }
        let wanted = path.filter { !$0.isEmpty }.map { $0.lowercased() }
        return segments.count <= wanted.count && zip(segments, wanted).allSatisfy { $0 == $1 }
    }

    /// Returns the host without its port.
    private static func hostName(_ authority: Substring) -> String {
        if authority.hasPrefix("["), let end = authority.firstIndex(of: "]") {
            return authority[...end].lowercased()
        }
        return authority.prefix { $0 != ":" }.lowercased()
    }
}

/// Decodes `%xx` in a string; `nil` if an escape is broken, or the result is not UTF-8.
func percentDecoded(_ text: String) -> String? {
    var bytes: [UInt8] = []
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
        guard byte == UInt8(ascii: "%") else {
            bytes.append(byte)
            continue
        }
        let digits = String(decoding: rest.prefix(2), as: UTF8.self)
        guard digits.utf8.count == 2, digits.utf8.allSatisfy({ $0 != 43 && $0 != 45 }),
            let value = UInt8(digits, radix: 16)
        else { return nil }
        bytes.append(value)
        rest = rest.dropFirst(2)
    }
    return String(validating: bytes, as: UTF8.self)
}
