import Cryptography
import Foundation
import JSON
import Support
import Testing

/// The fixture of Cognito Sync's rows: a pool of the app's, an identity with a dataset, and a
/// device.
///
/// The rows have the lists of headers that their clients sign; the signatures are made here, as the
/// clients make them.
struct CognitoForms: FormBench {
    let bench: CognitoBench

    init() async throws {
        bench = try await CognitoBench()
        try await bench.carillon("app", "set", bench.app.id, "sync-unsigned=on")
    }

    var surface: String { "cognito" }
    var base: String { bench.bench.registration }
    var simulator: SimulatorControl { bench.bench.simulator }

    func seed() async throws -> FormSeed {
        // A bulk publish is allowed once a day, so each row has a pool of its own.
        let pool = "us-east-1:\(UUID().uuidString.lowercased())"
        try await bench.carillon("app", "link", bench.app.id, "--cognito-identity-pool", pool)
        let identity = "us-east-1:\(UUID().uuidString.lowercased())"
        let root = "\(base)/identitypools/\(pool)"
        let dataset = "\(root)/identities/\(identity)/datasets/notes.a:b_c-1"
        try await call(
            "POST",
            "\(root)/configuration",
            [
                "PushSync": [
                    "ApplicationArns": ["arn:aws:sns:us-east-1:1:app/APNS/x"],
                    "RoleArn": "arn:aws:iam::1:role/r00000000000",
                ]
            ],
            isDeveloper: true
        )
        // Rows name records by these counts.
        for (index, key) in ["k3", "k0", "gone", "k2"].enumerated() {
            let patch: JSONValue = [
                "Op": "replace", "Key": .string(key), "Value": "v", "SyncCount": 0,
            ]
            let token = try await call("GET", "\(dataset)/records")["SyncSessionToken"]
            let saved = try await call(
                "POST",
                dataset,
                ["SyncSessionToken": token ?? "", "RecordPatches": [patch]]
            )
            #expect(saved["Records"]?[0]?["SyncCount"] == JSONValue(index + 1))
        }
        let device = try await call(
            "POST",
            "\(root)/identity/\(identity)/device",
            ["Platform": "APNS", "Token": .string(makeAPNsToken())]
        )["DeviceId"]?.string
        guard let device else { throw TestFailure("no device") }
        try await call("POST", "\(dataset)/subscriptions/\(device)")
        let session = try await call("GET", "\(dataset)/records")["SyncSessionToken"]?.string
        return FormSeed(
            values: [
                "pool": pool.replacing(":", with: "%3A"), "pool-id": pool,
                "identity": identity.replacing(":", with: "%3A"), "identity-id": identity,
                "device": device, "session": session ?? "", "app": bench.app.id,
                "token-1": makeAPNsToken().uppercased(),
                "now": String(Int(Date().timeIntervalSince1970)),
            ],
            devices: [:]
        )
    }

    /// Makes a call of the fixture itself, signed for a developer.
    @discardableResult
    private func call(
        _ method: String,
        _ url: String,
        _ body: JSONValue? = nil,
        isDeveloper: Bool = false
    ) async throws -> JSONValue {
        var headers: [String: String] = ["Content-Type": "application/json"]
        let bytes = body?.bytes ?? []
        if isDeveloper {
            headers = signed(
                method,
                String(url.dropFirst(base.count)),
                headers.merging(
                    ["Authorization": "Credential=${app}:master SignedHeaders=host;x-amz-date,"]
                ) { $1 },
                bytes,
                isMaster: true
            )
        }
        let answer = try await http(method, url, headers: headers, bytes: bytes)
        guard answer.status == 200, let json = answer.json else {
            throw TestFailure("\(method) \(url): \(answer.status) \(answer.text)")
        }
        return json
    }

    func headers(of form: ClientForm, _ seed: FormSeed) -> [String: String] {
        guard let stated = form.headers.first(where: { $0.key.lowercased() == "authorization" })
        else { return form.headers }
        return signed(
            form.method,
            form.target,
            form.headers,
            form.body,
            isMaster: stated.value.contains(":master")
        )
    }

    /// Removes the pool, as an app may have only a hundred.
    func clear(_ seed: FormSeed) async throws {
        try await bench.carillon(
            "app",
            "unlink",
            bench.app.id,
            "--cognito-identity-pool",
            seed.values["pool-id"] ?? ""
        )
    }

    // MARK: Signatures

    /// Returns the headers with a signature over those that the given `Authorization` lists.
    private func signed(
        _ method: String,
        _ target: String,
        _ given: [String: String],
        _ body: [UInt8],
        isMaster: Bool
    ) -> [String: String] {
        let stamp = Self.stamp(Date())
        let hash = Hex.encode(sha256(body))
        var headers = given
        var names = ["host", "x-amz-date"]
        for (name, value) in given {
            switch name.lowercased() {
            case "authorization":
                headers[name] = nil
                names = Self.names(in: value)
            case "x-amz-date": headers[name] = nil
            case "x-amz-content-sha256": headers[name] = hash
            default: break
            }
        }
        headers["X-Amz-Date"] = stamp
        var values: [String: String] = [:]
        for (name, value) in headers { values[name.lowercased()] = value }
        values["host"] = String(base.drop { $0 != "/" }.dropFirst(2))
        values["content-length"] = String(body.count)
        let parts = target.split(separator: "?", maxSplits: 1).map(String.init)
        let query = (parts.count > 1 ? parts[1] : "").split(separator: "&").map { pair in
            pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                .map { Self.encoded(Self.decoded(String($0))) }.joined(separator: "=")
        }.sorted().joined(separator: "&")
        let path = parts[0].split(separator: "/", omittingEmptySubsequences: false)
            .map { Self.encoded(String($0)) }.joined(separator: "/")
        let lines =
            [method, path, query] + names.map { "\($0):\(Self.trimmed(values[$0] ?? ""))" }
            + ["", names.joined(separator: ";"), hash]
        let scope = "\(stamp.prefix(8))/us-east-1/cognito-sync/aws4_request"
        let text = [
            "AWS4-HMAC-SHA256", stamp, scope,
            Hex.encode(sha256(Array(lines.joined(separator: "\n").utf8))),
        ].joined(separator: "\n")
        let app = bench.app
        var key = Array("AWS4\(isMaster ? app.masterKey : app.appKey)".utf8)
        for part in [String(stamp.prefix(8)), "us-east-1", "cognito-sync", "aws4_request"] {
            key = hmacSHA256(key: key, Array(part.utf8))
        }
        let signature = Hex.encode(hmacSHA256(key: key, Array(text.utf8)))
        headers["Authorization"] =
            "AWS4-HMAC-SHA256 Credential=\(app.id)\(isMaster ? ":master" : "")/\(scope), "
            + "SignedHeaders=\(names.joined(separator: ";")), Signature=\(signature)"
        return headers
    }

    private static func names(in header: String) -> [String] {
        guard let range = header.range(of: "SignedHeaders=") else { return [] }
        return header[range.upperBound...].prefix { $0 != "," }.split(separator: ";")
            .map(String.init)
    }

    private static func trimmed(_ value: String) -> String {
        value.split(separator: " ").joined(separator: " ")
    }

    private static func decoded(_ text: String) -> String {
        text.replacing("+", with: " ").removingPercentEncoding ?? text
    }

    private static func encoded(_ text: String) -> String {
        text.utf8.map { byte in
            let isPlain =
                (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte)
                || "-_.~".utf8.contains(byte)
            return isPlain
                ? String(Unicode.Scalar(byte)) : "%" + Hex.encode([byte]).uppercased()
        }.joined()
    }

    private static func stamp(_ date: Date) -> String {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(identifier: "UTC")
        formatter.dateFormat = "yyyyMMdd'T'HHmmss'Z'"
        return formatter.string(from: date)
    }
}
