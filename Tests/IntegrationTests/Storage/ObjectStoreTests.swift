import InstallationStorage
import JSON
import PushCore
import PushStorage
import Support
import Testing

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ObjectStoreTests {
    private func identity(_ id: String, _ fields: JSONObject) -> Identity {
        Identity(
            app: StorageFixture.app,
            objectID: id,
            fields: fields,
            createdAt: .now(),
            updatedAt: .now()
        )
    }

    @Test("The stored size of a value is estimated before it is stored")
    func keptBytes() async throws {
        try await StorageFixture.run { fixture in
            func length(_ value: JSONValue) async throws -> Int {
                let rows = try await fixture.server.query(
                    "select octet_length('\(value.text)'::jsonb::text)"
                )
                return try #require(rows.first.flatMap { Int($0) })
            }
            let texts = [
                "1e308", "-1e308", "1.5e300", "5e-324", "-2.2250738585072014e-308", "1e-5", "1e16",
                "1.2345678901234567e19", "9007199254740993", "0.0001", "-0.0", "1e400", "-12E-400",
                "1E131071", "0.001e5", "123.456e-2", "123.456e2", "1e15", "1.7976931348623157e308",
            ]
            for text in texts {
                let value = try JSONValue.parse(text)
                let kept = try await length(value)
                // -0 loses its sign, and a zero before the point may not count.
                #expect(kept <= value.keptByteCount, "\(text)")
                #expect(value.keptByteCount <= kept + 5, "\(text)")
            }
            let list = #"[1e308,1.5,{"x":5e-324,"y":"1e308"},null,true,7]"#
            let object = try JSONValue.parse(#"{"list":\#(list),"text":"e\"e"}"#)
            let kept = try await length(object)
            // It has blanks after commas and colons.
            #expect((kept - 12...kept).contains(object.keptByteCount))
            #expect(try JSONValue.parse("1e999999999999999999999").keptByteCount > 1_000_000)
        }
    }

    @Test("One of twenty concurrent creations and changes gets a name")
    func uniqueNames() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.identities
            for number in 0..<10 {
                _ = try await store.create(identity("old\(number)", ["number": JSONValue(number)]))
            }
            let winners = await withTaskGroup(of: Bool.self) { group in
                for number in 0..<20 {
                    group.addTask {
                        do {
                            if number % 2 == 0 {
                                _ = try await store.create(
                                    identity("new\(number)", ["username": "ada"])
                                )
                            } else {
                                _ = try await store.update(
                                    app: StorageFixture.app,
                                    objectID: "old\(number / 2)"
                                ) { fields in
                                    var fields = fields
                                    fields["username"] = "ada"
                                    return fields
                                }
                            }
                            return true
                        } catch let error as InstallationError {
                            #expect(error.code == 202)
                        } catch {
                            Issue.record(error)
                        }
                        return false
                    }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(winners == 1)
            let condition = try Where.parse(["username": "ada"])
            #expect(try await store.count(app: StorageFixture.app, where: condition) == 1)
        }
    }

    @Test("Concurrent changes of one identity are all kept")
    func increments() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.identities
            _ = try await store.create(identity("u", ["n": 0]))
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<30 {
                    group.addTask {
                        _ = try await store.update(app: StorageFixture.app, objectID: "u") {
                            ["n": JSONValue(($0["n"]?.integer ?? 0) + 1)]
                        }
                    }
                }
                try await group.waitForAll()
            }
            #expect(
                try await store.find(app: StorageFixture.app, objectID: "u")?.fields == ["n": 30]
            )
        }
    }

    @Test("A page of identities is the same whether few match or many, and in any order")
    func identityPages() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                insert into identities (app, id, fields)
                select '\(StorageFixture.app)', 'u' || lpad(n::text, 5, '0'),
                    jsonb_build_object('n', n, 'kind', CASE WHEN n % 1000 = 0 THEN 'rare'
                        ELSE 'common' END)
                from generate_series(0, 6999) as n
                """
            )
            let store = fixture.database.identities
            func page(_ condition: JSONValue, _ order: String, _ skip: Int) async throws -> [Int?] {
                try await store.query(
                    app: StorageFixture.app,
                    where: try Where.parse(condition),
                    order: try SortKey.parse(order),
                    limit: 3,
                    skip: skip
                ).map { $0.fields["n"]?.integer }
            }
            #expect(try await page(["kind": "rare"], "", 0) == [0, 1000, 2000])
            #expect(try await page(["kind": "rare"], "-n", 1) == [5000, 4000, 3000])
            #expect(try await page(["kind": "rare"], "n", 6) == [6000])
            #expect(try await page(["kind": "rare"], "n", 7).isEmpty)
            #expect(try await page(["kind": "none"], "n", 0).isEmpty)
            #expect(try await page(["kind": "common"], "-n", 0) == [6999, 6998, 6997])
            #expect(try await page(["kind": "common", "n": ["$lt": 3]], "n", 0) == [1, 2])
            #expect(try await page(["objectId": "u00042"], "", 0) == [42])
        }
    }

    @Test("Objects are read by their ids in order, as many at once as fit into memory")
    func parts() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            for (table, id) in [("identities", "id"), ("installations", "object_id, device_type")] {
                _ = try await fixture.server.query(
                    """
                    insert into \(table) (app, fields, \(id))
                    select '\(app)', jsonb_build_object('text', repeat('x', bytes)), name
                        \(table == "identities" ? "" : ", 'ios'")
                    from (values ('a', 100000), ('b', 100000), ('c', 100000), ('d', 300000), ('e', 1))
                        as n (name, bytes)
                    """
                )
            }
            for (asked, answered, isCut) in [
                (["c", "none", "e", "a", "b"], ["c", "e", "a"], true), (["d", "a"], ["d"], true),
                (["b", "a"], ["b", "a"], false), (["none"], [], false),
            ] as [([String], [String], Bool)] {
                let identities = try await fixture.database.identities.part(app: app, of: asked)
                #expect(identities.elements.map(\.objectID) == answered)
                #expect(identities.isCut == isCut)
                let phones = try await fixture.database.installations.part(app: app, of: asked)
                #expect(phones.elements.map(\.objectID) == answered && phones.isCut == isCut)
                #expect(phones.elements.count < 2 || phones.bytes <= PageBound.partBytes)
            }
            let record = OutgoingRecord(topic: "t", key: nil, value: [1])
            var ids: [String] = []
            for (id, count) in [("p", 100_000), ("q", 10), ("r", 100_000)] {
                let text = JSONValue.string(String(repeating: "x", count: count))
                let push = try fixture.push(id, ["data": ["alert": text]])
                ids.append(try await fixture.database.pushes.accept(push, record: record).id)
            }
            for order in [[0, 1], [1, 2]] {
                let asked = order.map { ids[$0] } + [ids[2 - order[0] * 2]]
                let page = try await fixture.database.pushes.part(of: asked)
                #expect(page.elements.map(\.id) == order.map { ids[$0] } && page.isCut)
            }
        }
    }

    @Test("The number of scheduled pushes is bounded, also for concurrent ones")
    func waitingPushes() async throws {
        try await StorageFixture.run { fixture in
            let pushes = fixture.database.pushes
            let time = Instant.now().adding(milliseconds: 3_600_000).iso8601
            let kept = try await withThrowingTaskGroup(of: Bool.self) { group in
                for number in 0..<30 {
                    let push = try fixture.push("p\(number)", ["push_time": .string(time)])
                    group.addTask {
                        do {
                            _ = try await pushes.accept(
                                push,
                                record: OutgoingRecord(topic: "t", key: nil, value: [1]),
                                maximumWaiting: 10
                            )
                            return true
                        } catch is TooManyScheduled {
                            return false
                        }
                    }
                }
                return try await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(kept == 10)
            let waiting = try await pushes.scheduled(app: StorageFixture.app)
            #expect(waiting.count == 10)
            // An immediate push is not affected.
            _ = try await pushes.accept(
                try fixture.push("now", [:]),
                record: OutgoingRecord(topic: "t", key: nil, value: [1]),
                maximumWaiting: 10
            )
        }
    }

    @Test(
        "A refused request id is not used up, and one of more than five minutes ago is free"
    )
    func requestKeys() async throws {
        try await StorageFixture.run { fixture in
            let pushes = fixture.database.pushes
            let record = OutgoingRecord(topic: "t", key: nil, value: [1])
            let time = Instant.now().adding(milliseconds: 3_600_000).iso8601
            let refused = try fixture.push("refused", ["push_time": .string(time)])
            await #expect(throws: TooManyScheduled.self) {
                try await pushes.accept(
                    refused,
                    record: record,
                    requestKey: "k",
                    maximumWaiting: 0
                )
            }
            let first = try await pushes.accept(
                try fixture.push("first", [:]),
                record: record,
                requestKey: "k"
            )
            let repeated = try await pushes.accept(
                try fixture.push("repeated", [:]),
                record: record,
                requestKey: "k"
            )
            #expect(repeated.id == first.id)
            _ = try await fixture.server.query(
                "update event_keys set created_at = created_at - interval '301 seconds'"
            )
            let later = try await pushes.accept(
                try fixture.push("later", [:]),
                record: record,
                requestKey: "k"
            )
            #expect(later.id != first.id)
        }
    }
}
