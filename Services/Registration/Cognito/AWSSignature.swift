import Cryptography
import HTTPServer
import PushCore

/// A request signed like those of AWS' clients, version 4, for the service `cognito-sync`.
///
/// The signed text is built from the request as received, with the headers that the request lists
/// as signed, as clients sign different ones. Signatures in the query are not read.
///
/// - SeeAlso: AWS Signature Version 4; the compat sheet of Cognito Sync, section 9.
struct AWSSignature: Sendable {
    /// `<app>`, or `<app>:master`.
    let accessKey: String
    private let day: String
    private let region: String
    private let signature: String
    /// The strings to sign, one for each canonical form of the query that clients sign.
    private let textsToSign: [[UInt8]]
    private let date: Instant

    private static let algorithm = "AWS4-HMAC-SHA256"
    private static let service = "cognito-sync"
    private static let end = "aws4_request"
    /// The clocks of devices may be wrong; SDKs correct them by the response's `Date`.
    private static let maximumDifferenceMilliseconds: Int64 = 5 * 60 * 1000
    private static let maximumBytes = 8192

    /// - Returns: `nil` if the request has no valid signature of this version, or what was signed
    ///   does not describe it.
    init?(_ request: HTTPServerRequest) {
        guard let header = request.header("authorization"),
            header.utf8.count <= Self.maximumBytes,
            request.headers.all("authorization").count == 1,
            let fields = Self.fields(of: header),
            let scope = fields["Credential"]?.split(
                separator: "/",
                omittingEmptySubsequences: false
            ),
            scope.count >= 5,
            let signed = fields["SignedHeaders"]?.split(separator: ";").map(String.init),
            let signature = fields["Signature"],
            let stamp = request.header("x-amz-date"),
            let date = Self.date(stamp)
        else { return nil }
        let own = scope.suffix(4).map(String.init)
        guard own[0] == stamp.prefix(8), own[2] == Self.service, own[3] == Self.end,
            Self.isEnough(signed, for: request)
        else { return nil }
        let hash = Hex.encode(sha256(request.body))
        let stated = request.headers.all("x-amz-content-sha256")
        guard stated.allSatisfy({ $0 == hash }) else { return nil }
        accessKey = scope.dropLast(4).joined(separator: "/")
        (day, region) = (own[0], own[1])
        self.signature = signature
        self.date = date
        textsToSign = Self.canonicalForms(of: request, signed: signed, hash: hash).map { form in
            let lines = [
                Self.algorithm, stamp, own.joined(separator: "/"),
                Hex.encode(sha256(Array(form.utf8))),
            ]
            return Array(lines.joined(separator: "\n").utf8)
        }
    }

    /// Whether `secret` made the signature. In constant time.
    func isSigned(by secret: String) -> Bool {
        var key = Array("AWS4\(secret)".utf8)
        for part in [day, region, Self.service, Self.end] {
            key = hmacSHA256(key: key, Array(part.utf8))
        }
        var isSigned = false
        for text in textsToSign {
            let expected = Hex.encode(hmacSHA256(key: key, text))
            isSigned = constantTimeEqual(Array(signature.utf8), Array(expected.utf8)) || isSigned
        }
        return isSigned
    }

    /// Whether the signature was made within five minutes.
    func isCurrent(at now: Instant) -> Bool {
        abs(now.milliseconds - date.milliseconds) <= Self.maximumDifferenceMilliseconds
    }

    /// Whether the query contains a signature, as in presigned links.
    static func isInQuery(of request: HTTPServerRequest) -> Bool {
        request.query.contains { $0.name.lowercased().hasPrefix("x-amz-") }
    }

    // MARK: Reading

    private static func fields(of header: String) -> [String: String]? {
        let parts = header.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0] == algorithm else { return nil }
        var fields: [String: String] = [:]
        for part in parts[1].split(separator: ",") {
            let pair = part.drop { $0 == " " }.split(
                separator: "=",
                maxSplits: 1,
                omittingEmptySubsequences: false
            )
            guard pair.count == 2, fields[String(pair[0])] == nil else { return nil }
            fields[String(pair[0])] = String(pair[1])
        }
        return fields
    }

    /// Whether all required headers are signed: the host, the time, and a session's token if the
    /// request has one.
    private static func isEnough(_ signed: [String], for request: HTTPServerRequest) -> Bool {
        let names = Set(signed)
        return names.count == signed.count && names.isSuperset(of: ["host", "x-amz-date"])
            && signed.allSatisfy { $0 == $0.lowercased() && request.headers.contains($0) }
            && (names.contains("x-amz-security-token")
                || !request.headers.contains("x-amz-security-token"))
            && request.headers.all("host").count == 1
            && request.headers.all("x-amz-date").count == 1
    }

    /// Parses `20260131T235959Z`.
    private static func date(_ stamp: String) -> Instant? {
        let bytes = Array(stamp.utf8)
        guard bytes.count == 16, bytes[8] == UInt8(ascii: "T"), bytes[15] == UInt8(ascii: "Z"),
            (bytes[..<8] + bytes[9..<15]).allSatisfy({ (48...57).contains($0) })
        else { return nil }
        func digits(_ range: Range<Int>) -> String {
            String(decoding: bytes[range], as: UTF8.self)
        }
        return Instant(
            iso8601: "\(digits(0..<4))-\(digits(4..<6))-\(digits(6..<8))T"
                + "\(digits(9..<11)):\(digits(11..<13)):\(digits(13..<15))Z"
        )
    }

    // MARK: Canonical form

    /// Returns the canonical forms. AWS decodes a query and encodes it again, as AWS' SDK for Java
    /// 1 sends a blank as `+` and signs `%20`. If that changes the query, the form with the
    /// received query is valid, too.
    private static func canonicalForms(
        of request: HTTPServerRequest,
        signed: [String],
        hash: String
    ) -> [String] {
        let parts = request.rawTarget.split(
            separator: "?",
            maxSplits: 1,
            omittingEmptySubsequences: false
        )
        let query = parts.count > 1 ? String(parts[1]) : ""
        let headers = signed.map { name in
            let values = request.headers.all(name).map(trimmed)
            return "\(name):\(values.joined(separator: ","))"
        }
        let start = [request.method.rawValue, encoded(Array(parts[0].utf8), keeping: "/")]
        let end = headers + ["", signed.joined(separator: ";"), hash]
        let queries = [sorted(query) { $0 }, sorted(query, reencoded)]
        return (queries[0] == queries[1] ? [queries[0]] : queries).map { query in
            (start + [query] + end).joined(separator: "\n")
        }
    }

    /// Percent-encodes all bytes except letters, digits, `-`, `_`, `.`, `~` and those in `kept`.
    private static func encoded(_ bytes: [UInt8], keeping kept: String = "") -> String {
        var encoded: [UInt8] = []
        for byte in bytes {
            if ASCII.isAlphanumeric(byte) || "-_.~".utf8.contains(byte) || kept.utf8.contains(byte)
            {
                encoded.append(byte)
            } else {
                encoded += Array("%\(Hex.encode([byte]).uppercased())".utf8)
            }
        }
        return String(decoding: encoded, as: UTF8.self)
    }

    /// Decodes a form value, where `+` is a blank, and encodes it again.
    private static func reencoded(_ sent: String) -> String {
        var decoded: [UInt8] = []
        let bytes = Array(sent.utf8)
        var index = 0
        while index < bytes.count {
            let digits = bytes[(index + 1)...].prefix(2)
            if bytes[index] == UInt8(ascii: "%"), digits.count == 2,
                let byte = UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
            {
                decoded.append(byte)
                index += 3
            } else {
                decoded.append(bytes[index] == UInt8(ascii: "+") ? 0x20 : bytes[index])
                index += 1
            }
        }
        return encoded(decoded)
    }

    /// Encodes the pairs of a query with `form` and sorts them by name and value.
    private static func sorted(_ query: String, _ form: (String) -> String) -> String {
        query.split(separator: "&").map { pair -> (name: String, value: String) in
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            return (form(String(parts[0])), parts.count > 1 ? form(String(parts[1])) : "")
        }
        .sorted { ($0.name, $0.value) < ($1.name, $1.value) }
        .map { "\($0.name)=\($0.value)" }.joined(separator: "&")
    }

    /// Removes blanks at both ends and repeated blanks within.
    private static func trimmed(_ value: String) -> String {
        value.split { $0 == " " || $0 == "\t" }.joined(separator: " ")
    }
}
