import InstallationStorage
import JSON
import PushCore
import Support
import Testing

/// Runs a `where` in the database and in a plain evaluation, over the same objects.
struct WhereFixture {
    let storage: StorageFixture
    let installations: [JSONObject]
    let identities: [JSONObject]

    /// Loads the objects of the database.
    init(_ storage: StorageFixture, identities: [JSONObject]) async throws {
        self.storage = storage
        self.identities = identities
        var found: [JSONObject] = []
        while true {
            var filter = InstallationStore.Filter()
            filter.after = found.last?["objectId"]?.string
            let page = try await storage.database.installations.query(
                app: StorageFixture.app,
                filter,
                limit: 1000
            )
            found += page.map(\.whereObject)
            if page.count < 1000 { break }
        }
        installations = found
    }

    /// Stores identities, as there is no store of them yet; each has an `objectId`.
    static func insert(_ identities: [JSONObject], into storage: StorageFixture) async throws {
        let rows = JSONValue.array(identities.map(JSONValue.object)).text
        _ = try await storage.server.query(
            """
            insert into identities (app, id, fields, created_at)
            select '\(StorageFixture.app)', value->>'objectId', value - 'objectId' - 'createdAt',
                (value->'createdAt'->>'iso')::timestamptz
            from jsonb_array_elements('\(rows.replacing("'", with: "''"))'::jsonb)
            """
        )
    }

    /// Returns the installations that a plain evaluation selects, in their order.
    func expected(_ condition: Where) -> [String] {
        var found: [(WhereQuery, [JSONObject])] = []
        func resolve(_ query: WhereQuery) -> [JSONObject] {
            if let known = found.first(where: { $0.0 == query }) { return known.1 }
            let objects = query.className == "_Installation" ? installations : identities
            let selected = WhereEvaluation(resolve: resolve).select(query, from: objects)
            found.append((query, selected))
            return selected
        }
        let evaluation = WhereEvaluation(resolve: resolve)
        return installations.filter { evaluation.matches(condition, $0) }
            .compactMap { $0["objectId"]?.string }
    }

    /// Returns the installations that the database selects, in their order.
    func found(_ condition: Where) async throws -> [String] {
        var ids: [String] = []
        let key = SortKey(path: try WherePath("objectId"), isDescending: false)
        while true {
            let page = try await storage.database.installations.query(
                app: StorageFixture.app,
                where: condition,
                order: [key],
                limit: 1000,
                skip: ids.count
            )
            ids += page.map(\.objectID)
            if page.count < 1000 { return ids }
        }
    }

    /// - Returns: The number of selected ones.
    @discardableResult
    func compare(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) async throws
        -> Int
    {
        let condition = try Where.parse(try JSONValue.parse(text))
        let (expected, found) = (expected(condition), try await found(condition))
        #expect(
            found == expected,
            "\(text): \(found.count) found, \(expected.count) expected",
            sourceLocation: sourceLocation
        )
        let count = try await storage.database.installations.count(
            app: StorageFixture.app,
            where: condition
        )
        #expect(count == found.count, sourceLocation: sourceLocation)
        return found.count
    }
}

/// The same numbers from the same seed, on every machine (SplitMix64).
struct SeededChoice: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    mutating func below(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &self) }

    mutating func isOne(in count: Int) -> Bool { below(count) == 0 }

    mutating func pick<Element>(_ list: [Element]) -> Element { list[below(list.count)] }
}
