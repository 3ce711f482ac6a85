import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The requests of every client of LeanCloud, Parse and Cognito Sync, and the parts of the
    /// response that it reads.
    @Suite("Forms of object and sync clients", .runningStack, .serialized, .timeLimit(.minutes(6)))
    struct ClientFormTests {
        @Test("Each request of LeanCloud's clients is accepted, with the response that they read")
        func leanCloud() async throws { try await ObjectForms(.leanCloud).play() }

        @Test("Each request of Parse's clients is accepted, with the response that they read")
        func parse() async throws { try await ObjectForms(.parse).play() }

        @Test(
            "Each request of Cognito Sync's clients is accepted, with the response that they read"
        )
        func cognito() async throws { try await CognitoForms().play() }
    }
}

/// The fixture of LeanCloud's and Parse's rows: three phones and a user for each.
struct ObjectForms: FormBench {
    enum Kind: String, Sendable {
        case leanCloud = "leancloud"
        case parse
    }

    let kind: Kind
    let bench: Bench

    init(_ kind: Kind) async throws {
        self.kind = kind
        bench = try await Bench()
        // These are the usual settings of such apps: SDKs find, delete and push with the app key.
        _ = try await run(
            Stack.executable("carillon"),
            [
                "app", "set", bench.app.id, "client-find=on", "client-delete=on", "client-push=on",
            ],
            environment: bench.stack.environment
        ).successful("app set")
    }

    var surface: String { kind.rawValue }
    var base: String { bench.registration }
    var simulator: SimulatorControl { bench.simulator }

    private func create(_ path: String, _ body: JSONValue) async throws -> String {
        let answer = try await http(
            "POST",
            "\(base)/1.1/\(path)",
            headers: bench.app.masterHeaders,
            body: body
        )
        guard let id = answer.json?["objectId"]?.string else {
            throw TestFailure("POST \(path): \(answer.status) \(answer.text)")
        }
        return id
    }

    func seed() async throws -> FormSeed {
        let unique = UUID().uuidString.lowercased()
        let (phone, other) = (makeAPNsToken(), makeAPNsToken())
        let android = "fcm-\(unique)"
        let place: JSONValue = ["__type": "GeoPoint", "latitude": 39.9, "longitude": 116.3]
        let one = try await create(
            "installations",
            [
                "deviceType": "ios", "deviceToken": .string(phone), "badge": 5, "city": "Oslo",
                "channels": ["news", "a"], "apnsTopic": .string(bench.app.bundleID),
                "location": place,
            ]
        )
        let two = try await create(
            "installations",
            [
                "deviceType": "android", "pushType": "gcm", "deviceToken": .string(android),
                "installationId": .string(unique), "badge": 2, "city": "Oslo",
                "channels": ["news", "a"], "location": place,
            ]
        )
        let three = try await create(
            "installations",
            [
                "deviceType": "ios", "deviceToken": .string(other), "channels": ["other"],
                "apnsTopic": .string(bench.app.bundleID),
            ]
        )
        let user = try await create("users", ["username": .string(unique)])
        let record = try await create("push", ["data": ["alert": "x"], "installations": []])
        let now = Int64(Date().timeIntervalSince1970 * 1000)
        func signed(_ key: String, _ end: String) -> String {
            "\(Hex.encode(md5(Array("\(now)\(key)".utf8)))),\(now)\(end)"
        }
        return FormSeed(
            values: [
                "app": bench.app.id, "app-key": bench.app.appKey,
                "master-key": bench.app.masterKey, "bundle": bench.app.bundleID,
                "sign": signed(bench.app.appKey, ""),
                "sign-master": signed(bench.app.masterKey, ",master"),
                "one": one, "two": two, "three": three, "user": user, "push": record,
                "now-iso": Date().formatted(.iso8601),
                "installation": unique, "unique": String(unique.prefix(8)),
                "token-1": makeAPNsToken(), "token-2": makeAPNsToken(),
                "token-3": makeAPNsToken(), "own-token": phone, "android-token": android,
            ],
            devices: ["ios": phone, "android": android, "other": other]
        )
    }

    func headers(of form: ClientForm, _ seed: FormSeed) -> [String: String] { form.headers }

    /// Removes all installations of the app, so that a push to all devices reaches only those of
    /// the next row.
    func clear(_ seed: FormSeed) async throws {
        let found = try await http(
            "GET",
            "\(base)/1.1/installations?keys=objectId&limit=1000",
            headers: bench.app.masterHeaders
        )
        let ids = (found.json?["results"]?.array ?? []).compactMap { $0["objectId"]?.string }
        guard !ids.isEmpty else { return }
        let answer = try await http(
            "DELETE",
            "\(base)/1.1/installations/\(ids.joined(separator: ","))",
            headers: bench.app.masterHeaders
        )
        guard answer.status == 200 else { throw TestFailure("DELETE: \(answer.text)") }
    }
}
