internal import Cryptography
internal import Foundation
internal import JSON

/// `tokens KEY ISSUER AUDIENCE PREFIX SUBJECTS COUNT`: prints COUNT different tokens, of the
/// subjects `<PREFIX>0` to `<PREFIX><SUBJECTS - 1>` in turns, as an issuer signs them by ES256 with
/// the private key in that file, valid for a day. A line each: the subject, a tab, the token.
func makeTokens(_ arguments: [String]) throws -> String {
    guard arguments.count == 6, let subjects = Int(arguments[4]), let count = Int(arguments[5]),
        subjects > 0, count > 0
    else {
        throw BenchmarkError(
            "usage: carillon-bench tokens KEY ISSUER AUDIENCE PREFIX SUBJECTS COUNT"
        )
    }
    let key = try SigningKey(pem: String(contentsOfFile: arguments[0], encoding: .utf8))
    let now = Int(Date().timeIntervalSince1970)
    let run = Int.random(in: 0..<1 << 30)
    var lines: [String] = []
    lines.reserveCapacity(count)
    for number in 0..<count {
        let subject = "\(arguments[3])\(number % subjects)"
        let token = try JWT.sign(
            header: ["typ": "JWT", "kid": "bench"],
            claims: [
                "iss": .string(arguments[1]), "aud": .string(arguments[2]),
                "sub": .string(subject), "jti": .string("\(run)-\(number)"),
                "iat": JSONValue(now), "exp": JSONValue(now + 86400),
            ],
            with: key
        )
        lines.append("\(subject)\t\(token)")
    }
    return lines.joined(separator: "\n")
}
