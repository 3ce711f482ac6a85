import Cryptography
import HTTPServer
import PushCore

/// A request that is signed as AWS' clients do it, version 4, for the service `cognito-sync`.
///
/// What is signed is taken from the request as it came over the wire, by the list of headers that it
/// names itself: clients sign different ones. Signatures in the query are not read.
///
/// - SeeAlso: AWS Signature Version 4; the compat sheet of Cognito Sync, section 9.
struct AWSSignature: Sendable {
    /// `<app>`, or `<app>:master`.
    let accessKey: String
    private let day: String
    private let region: String
    private let signature: String
    private let textToSign: [UInt8]
    private let date: Instant

    private static let algorithm = "AWS4-HMAC-SHA256"
    private static let service = "cognito-sync"
    private static let end = "aws4_request"
    /// Clocks of devices are wrong; SDKs mend theirs by the answer's `Date`.
    private static let maximumDifferenceMilliseconds: Int64 = 5 * 60 * 1000
    private static let maximumBytes = 8192

    /// - Returns: `nil` where it is not signed so, or what is signed is not what came.
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
        let canonical = Self.canonical(request, signed: signed, hash: hash)
        textToSign = Array(
            [
                Self.algorithm, stamp, own.joined(separator: "/"),
                Hex.encode(sha256(Array(canonical.utf8))),
            ]
            .joined(separator: "\n").utf8
        )
    }

    /// Whether `secret` made it. In constant time.
    func isSigned(by secret: String) -> Bool {
        var key = Array("AWS4\(secret)".utf8)
        for part in [day, region, Self.service, Self.end] {
            key = hmacSHA256(key: key, Array(part.utf8))
        }
        let expected = Hex.encode(hmacSHA256(key: key, textToSign))
        return constantTimeEqual(Array(signature.utf8), Array(expected.utf8))
    }

    /// Whether it was made within five minutes.
    func isCurrent(at now: Instant) -> Bool {
        abs(now.milliseconds - date.milliseconds) <= Self.maximumDifferenceMilliseconds
    }

    /// Whether the query holds a signature, as links do that are signed beforehand.
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

    /// The host and the time must be signed, and a session's token where there is one.
    private static func isEnough(_ signed: [String], for request: HTTPServerRequest) -> Bool {
        let names = Set(signed)
        return names.count == signed.count && names.isSuperset(of: ["host", "x-amz-date"])
            && signed.allSatisfy { $0 == $0.lowercased() && request.headers.contains($0) }
            && (names.contains("x-amz-security-token")
                || !request.headers.contains("x-amz-security-token"))
            && request.headers.all("host").count == 1
            && request.headers.all("x-amz-date").count == 1
    }

    /// `20260131T235959Z`.
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

    private static func canonical(
        _ request: HTTPServerRequest,
        signed: [String],
        hash: String
    ) -> String {
        let parts = request.rawTarget.split(
            separator: "?",
            maxSplits: 1,
            omittingEmptySubsequences: false
        )
        var lines = [
            request.method.rawValue, path(String(parts[0])),
            query(parts.count > 1 ? String(parts[1]) : ""),
        ]
        for name in signed {
            let values = request.headers.all(name).map(trimmed)
            lines.append("\(name):\(values.joined(separator: ","))")
        }
        return (lines + ["", signed.joined(separator: ";"), hash]).joined(separator: "\n")
    }

    /// The path as it was sent, encoded once more.
    private static func path(_ sent: String) -> String {
        var encoded: [UInt8] = []
        for byte in sent.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"),
                UInt8(ascii: "."), UInt8(ascii: "~"), UInt8(ascii: "/"):
                encoded.append(byte)
            default: encoded += Array("%\(Hex.encode([byte]).uppercased())".utf8)
            }
        }
        return String(decoding: encoded, as: UTF8.self)
    }

    /// The pairs as they were sent, sorted by name and value.
    private static func query(_ sent: String) -> String {
        sent.split(separator: "&").map { pair -> (name: String, value: String) in
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            return (String(parts[0]), parts.count > 1 ? String(parts[1]) : "")
        }
        .sorted { ($0.name, $0.value) < ($1.name, $1.value) }
        .map { "\($0.name)=\($0.value)" }.joined(separator: "&")
    }

    /// Without blanks at its ends, and one where several stand.
    private static func trimmed(_ value: String) -> String {
        value.split { $0 == " " || $0 == "\t" }.joined(separator: " ")
    }
}
