import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Access rights",
        .serialized,
        .timeLimit(.minutes(10))
    )
    struct RightsTableTests {
        @Test("Every route answers every credential as rights.md says")
        func rights() async throws {
            try await Self.made().compare(with: "rights.md")
        }

        private static func made() async throws -> RightsTable {
            try await Stack.with { stack in
                let (shop, open, other) = (
                    try await stack.makeApp(), try await stack.makeApp(), try await stack.makeApp()
                )
                try await stack.carillon(
                    "app",
                    "set",
                    shop.id,
                    "pushes-per-minute=0",
                    "signature-max-age=600"
                )
                try await stack.carillon(
                    "app",
                    "set",
                    open.id,
                    "pushes-per-minute=0",
                    "client-push=on",
                    "client-find=on",
                    "client-delete=on"
                )
                let service = try await stack.start(
                    "carillon-registration",
                    [
                        "LOG_LEVEL": "debug", "RATE_LIMIT_FAILURES_PER_ADDRESS": "0",
                        "CONNECTION_URLS": "wss://push.example.com",
                    ]
                )
                var shopFixture = try await RightsFixture(shop, service.url)
                var openFixture = try await RightsFixture(open, service.url)
                var table = RightsTable(credentials(shop, open, other))
                // The console's pages know sessions instead of keys: rights-console.md.
                for action in RightsTable.routes(of: service) where !action.contains(" /console") {
                    let parts = action.split(separator: " ", maxSplits: 1).map(String.init)
                    let (method, pattern) = (parts[0], parts[1])
                    var answers: [String: HTTPAnswer] = [:]
                    for credential in table.credentials {
                        let question = (credential.isOpen ? openFixture : shopFixture)
                            .question(method, pattern)
                        answers[credential.name] = try await http(
                            method,
                            service.url + question.path,
                            headers: question.headers.merging(credential.headers) { $1 },
                            bytes: question.body
                        )
                        // A deleted object is made again for the next request.
                        guard method == "DELETE",
                            answers[credential.name].map({ $0.status < 300 }) == true
                        else { continue }
                        if credential.isOpen {
                            try await openFixture.renew()
                        } else {
                            try await shopFixture.renew()
                        }
                    }
                    table.add(action, table.credentials.map { cell($0, answers) })
                }
                #expect(await service.process.stop() == .status(0))
                return table
            }
        }

        private static func cell(
            _ credential: RightsTable.Credential,
            _ answers: [String: HTTPAnswer]
        ) -> String {
            guard let answer = answers[credential.name] else { return "" }
            guard (200..<300).contains(answer.status), let name = credential.fullest,
                let full = answers[name]?.json.map(names), let own = answer.json.map(names)
            else { return "\(answer.status)" }
            return full.subtracting(own).isEmpty ? "\(answer.status)" : "\(answer.status)-"
        }

        /// Returns the names of all members, at any depth.
        private static func names(_ value: JSONValue) -> Set<String> {
            switch value {
            case .null, .bool, .integer, .double, .number, .string: []
            case .array(let elements): elements.reduce(into: []) { $0.formUnion(names($1)) }
            case .object(let object):
                object.reduce(into: []) { found, member in
                    found.insert(member.key)
                    found.formUnion(names(member.value))
                }
            }
        }

        // MARK: Credentials

        private static func credentials(
            _ shop: Stack.App,
            _ open: Stack.App,
            _ other: Stack.App
        ) -> [RightsTable.Credential] {
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            func leanCloud(_ app: Stack.App, _ key: String) -> [String: String] {
                ["X-LC-Id": app.id, "X-LC-Key": key]
            }
            func signed(_ key: String, _ time: Int64, _ end: String = "") -> [String: String] {
                let digest = Hex.encode(md5(Array("\(time)\(key)".utf8)))
                return ["X-LC-Id": shop.id, "X-LC-Sign": "\(digest),\(time)\(end)"]
            }
            func basic(_ key: String) -> [String: String] {
                ["Authorization": "Basic " + Base64.encode(Array("\(shop.id):\(key)".utf8))]
            }
            func shared(_ key: String, isFull: Bool, after seconds: Int64 = 3600) -> [String:
                String]
            {
                let token = sharedAccessSignature(
                    "http://127.0.0.1/",
                    key: key,
                    named: isFull
                        ? "DefaultFullSharedAccessSignature"
                        : "DefaultListenSharedAccessSignature",
                    expiry: now / 1000 + seconds
                )
                return ["Authorization": token]
            }
            func parse(_ app: Stack.App, _ keys: [String: String]) -> [String: String] {
                keys.merging(["X-Parse-Application-Id": app.id]) { $1 }
            }
            func client(_ app: Stack.App) -> [String: String] {
                parse(app, ["X-Parse-REST-API-Key": app.appKey])
            }
            func master(_ app: Stack.App) -> [String: String] {
                parse(app, ["X-Parse-Master-Key": app.masterKey])
            }
            typealias Credential = RightsTable.Credential
            return [
                Credential(name: "none", about: "nothing", headers: [:]),
                Credential(
                    name: "wrong",
                    about: "a wrong app key (`X-LC-Key`)",
                    headers: leanCloud(shop, "wrong")
                ),
                Credential(
                    name: "wrong master",
                    about: "a wrong master key (`X-LC-Key`)",
                    headers: leanCloud(shop, shop.appKey + ",master")
                ),
                Credential(
                    name: "app",
                    about: "the app key (`X-LC-Key`)",
                    fullest: "master",
                    headers: shop.clientHeaders
                ),
                Credential(
                    name: "app of open",
                    about: "the app key of *open*",
                    isOpen: true,
                    fullest: "master of open",
                    headers: open.clientHeaders
                ),
                Credential(
                    name: "master",
                    about: "the master key",
                    headers: shop.masterHeaders
                ),
                Credential(
                    name: "master of open",
                    about: "the master key of *open*",
                    isOpen: true,
                    headers: open.masterHeaders
                ),
                Credential(
                    name: "signed",
                    about: "a signature by the app key (`X-LC-Sign`)",
                    fullest: "master",
                    headers: signed(shop.appKey, now)
                ),
                Credential(
                    name: "signed by master",
                    about: "a signature by the master key",
                    fullest: "master",
                    headers: signed(shop.masterKey, now, ",master")
                ),
                Credential(
                    name: "old",
                    about: "a signature by the master key, of an hour ago",
                    headers: signed(shop.masterKey, now - 3_600_000, ",master")
                ),
                Credential(
                    name: "crossed",
                    about: "shop's id with another app's master key",
                    headers: leanCloud(shop, other.masterKey + ",master")
                ),
                Credential(
                    name: "other",
                    about: "another app's id with its master key: shop's ids are none of its own",
                    headers: other.masterHeaders
                ),
                Credential(
                    name: "basic",
                    about: "Basic, with the master key",
                    fullest: "master",
                    headers: basic(shop.masterKey)
                ),
                Credential(
                    name: "basic app",
                    about: "Basic, with the app key",
                    headers: basic(shop.appKey)
                ),
                Credential(
                    name: "listen",
                    about: "SAS, listen",
                    fullest: "full",
                    headers: shared(shop.appKey, isFull: false)
                ),
                Credential(
                    name: "listen of open",
                    about: "SAS, listen, of *open*",
                    isOpen: true,
                    fullest: "full",
                    headers: shared(open.appKey, isFull: false)
                ),
                Credential(
                    name: "full",
                    about: "SAS, full",
                    headers: shared(shop.masterKey, isFull: true)
                ),
                Credential(
                    name: "expired",
                    about: "SAS, full, expired",
                    headers: shared(shop.masterKey, isFull: true, after: -60)
                ),
                Credential(
                    name: "full of other",
                    about: "SAS, full, by another app's key",
                    headers: shared(other.masterKey, isFull: true)
                ),
                Credential(
                    name: "parse",
                    about: "Parse's client key: the app key",
                    fullest: "parse master",
                    headers: client(shop)
                ),
                Credential(
                    name: "parse of open",
                    about: "Parse's client key, of *open*",
                    isOpen: true,
                    fullest: "parse master",
                    headers: client(open)
                ),
                Credential(
                    name: "parse master",
                    about: "Parse's master key",
                    headers: master(shop)
                ),
                Credential(
                    name: "parse wrong master",
                    about: "a wrong master key of Parse's beside a right client key",
                    headers: client(shop).merging(["X-Parse-Master-Key": "wrong"]) { $1 }
                ),
                Credential(
                    name: "parse of other",
                    about: "shop's id with another app's master key, in Parse's words",
                    headers: parse(shop, ["X-Parse-Master-Key": other.masterKey])
                ),
            ]
        }
    }
}
