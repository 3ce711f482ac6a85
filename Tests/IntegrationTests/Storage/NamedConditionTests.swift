import JSON
import Postgres
import PushCore
import Support
import Testing

@testable import PushStorage
@testable import Storage

@Suite(
    "A where on one device takes the fast path with the same result",
    .timeLimit(.minutes(3)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct NamedConditionTests {
    private func pointer(_ id: String) -> JSONValue {
        ["__type": "Pointer", "className": "_User", "objectId": .string(id)]
    }

    private func targets(
        _ condition: JSONValue,
        _ fixture: StorageFixture
    ) async throws -> [String]? {
        let push = try fixture.push("\(condition.text)", ["where": condition])
        #expect(push.isForFewDevices)
        guard
            case .new(let deliveries, _, false)? =
                try await fixture.database.fewDevices.lookUp([push]).first
        else { return nil }
        #expect(deliveries.allSatisfy { $0.suppression == nil && $0.pushID == push.id })
        return deliveries.map(\.target).sorted()
    }

    /// Returns the devices that the condition's planner would choose.
    private func planned(
        _ condition: JSONValue,
        _ fixture: StorageFixture
    ) async throws -> [String] {
        let database = fixture.database
        let push = try fixture.push("planned \(condition.text)", ["where": condition])
        let session = try await database.sessions.open(name: "planner")
        _ = try await database.intake.plan(session: session, [push])
        _ = try await database.planning.claim(session: session)
        let page = try await database.planning.planPage(
            session: session,
            pushID: push.id,
            shardSize: 100
        )
        #expect(page.isFinished)
        return try await fixture.server.query(
            """
            SELECT m FROM shards s CROSS JOIN LATERAL unnest(s.members) AS m
            WHERE s.push_id = '\(push.id)' ORDER BY m
            """
        )
    }

    @Test("A field is looked up by its index, also if the planner expects an empty table")
    func byIndex() async throws {
        try await StorageFixture.run { fixture in
            let push = try fixture.push("e", ["where": ["owner": pointer("u1")]])
            let (sql, parameters) = try #require(BatchAudience([push]).ofFields)
            let plan = try await fixture.database.fewDevices.others.transaction(of: [
                (IndexPlan.sql, []), ("EXPLAIN " + sql, parameters),
            ])
            let text = try plan[1].rows.map { try $0.text("QUERY PLAN") }.joined(separator: "\n")
            #expect(text.contains("installations_fields") && !text.contains("Seq Scan"), "\(text)")
        }
    }

    @Test("The fast path finds exactly the condition's devices by id, token and user")
    func same() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            var phones: [Installation] = []
            for (token, more) in [
                ("aa01", ["installationId": "i-1", "owner": pointer("u1")]),
                ("aa02", ["installationId": "i-2", "user": pointer("u1")]),
                // Its identity is not its owner.
                ("aa03", ["owner": pointer("u1"), "identity": "somebody"]),
                ("aa04", ["owner": [pointer("u2"), pointer("u1")]]),
                ("aa05", [:]),
            ] as [(String, JSONObject)] {
                var object = fixture.iPhone(token)
                for (key, value) in more { object[key] = value }
                phones.append(try await fixture.install(object))
            }
            var elsewhere = fixture.iPhone("aa01")
            elsewhere["owner"] = pointer("u1")
            _ = try await fixture.install(elsewhere, app: "other")
            // Its installation id is another's object id: a condition distinguishes them.
            var odd = fixture.iPhone("aa06")
            odd["installationId"] = .string(phones[0].objectID)
            phones.append(try await fixture.install(odd))
            let ids = phones.map(\.objectID)
            for (condition, expected) in [
                (["objectId": .string(ids[0])], [ids[0]]),
                (["installationId": .string(ids[0])], [ids[5]]),
                (["installationId": ["$in": ["i-1", "i-2", "i-3"]]], [ids[0], ids[1]]),
                (["deviceToken": "aa05"], [ids[4]]), (["deviceToken": "AA05"], []),
                (["owner": pointer("u1")], [ids[0], ids[2], ids[3]]),
                (["user": pointer("u1")], [ids[1]]), (["owner": pointer("nobody")], []),
                (["objectId": ["$in": [.string(ids[0]), .string(ids[0]), "gone"]]], [ids[0]]),
            ] as [(JSONValue, [String])] {
                let found = try await targets(condition, fixture)
                #expect(found == expected.sorted(), "\(condition.text)")
                let chosen = try await planned(condition, fixture)
                #expect(chosen == expected.sorted(), "\(condition.text)")
            }
        }
    }

    @Test(
        "Rule 16: an invalid device, or one without a token, is omitted, while a named one is suppressed"
    )
    func invalid() async throws {
        try await StorageFixture.run { fixture in
            let phone = try await fixture.install(fixture.iPhone("aa01"))
            let condition: JSONValue = ["objectId": .string(phone.objectID)]
            for change in [
                "valid = false", "valid = true, template_only = true, token_hash = null",
            ] {
                _ = try await fixture.server.query("update installations set \(change)")
                let push = try fixture.push(change, ["where": condition])
                guard
                    case .new(let found, _, _)? =
                        try await fixture.database.fewDevices.lookUp([push]).first
                else {
                    Issue.record("it is new")
                    return
                }
                #expect(found.isEmpty, "\(change)")
                #expect(try await planned(condition, fixture).isEmpty)
                _ = try await fixture.server.query(
                    "truncate pushes, event_keys, shards cascade"
                )
            }
            _ = try await fixture.server.query(
                "update installations set template_only = false, valid = false,"
                    + " token_hash = sha256(convert_to(token, 'UTF8'))"
            )
            let named = try fixture.push("named", ["installations": [.string(phone.objectID)]])
            guard
                case .new(let found, _, _)? =
                    try await fixture.database.fewDevices.lookUp([named]).first
            else {
                Issue.record("it is new")
                return
            }
            #expect(found.map(\.suppression) == ["the installation is invalid"])
        }
    }

    @Test("A user with more than few devices is planned as rows for all of them")
    func many() async throws {
        try await StorageFixture.run { fixture in
            for number in 0...NewPush.fewDevices {
                var object = fixture.iPhone("ab\(10 + number)")
                object["owner"] = pointer("crowd")
                _ = try await fixture.install(object)
            }
            let condition: JSONValue = ["owner": pointer("crowd")]
            #expect(try await targets(condition, fixture) == nil)
            #expect(try await planned(condition, fixture).count == NewPush.fewDevices + 1)
        }
    }

    @Test("A condition that is narrowed, widened or paged stays with the planner")
    func others() async throws {
        try await StorageFixture.run { fixture in
            let ids = (0...NewPush.fewDevices).map { JSONValue.string("i\($0)") }
            for object in [
                ["where": ["objectId": "a"], "channels": ["news"]],
                ["where": ["objectId": "a"], "installations": ["a"]],
                ["where": ["objectId": ["$in": .array(ids)]]],
                ["where": ["objectId": "a"], "data": ["alert": "x", "badge": "Increment"]],
                ["where": ["badge": 0]],
            ] as [JSONObject] {
                let push = try fixture.push("e", object)
                #expect(!push.isForFewDevices, "\(object)")
            }
        }
    }
}
