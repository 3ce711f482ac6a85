internal import EventLoop
import InstallationStorage
internal import JSON
internal import PushCore
internal import PushStorage
import Storage

/// `where APP COUNT`: queries the installations of an app, made by `deploy/bench where`, by
/// conditions, one after another, and prints how long that took, in milliseconds.
func measureWhere(_ arguments: [String], server: String?) async throws -> String {
    guard let server else { throw BenchmarkError("DATABASE_URL is not set") }
    guard arguments.count == 2, let calls = Int(arguments[1]), calls >= 100 else {
        throw BenchmarkError("usage: carillon-bench where APP COUNT, of at least 100 calls")
    }
    let app = arguments[0]
    let loop = try EventLoop(name: "where")
    let database = PushDatabase(DatabaseConfiguration(uri: server, connections: 2), on: loop)
    let outcome = await Task(executorPreference: loop) {
        var figures: JSONObject = [:]
        for question in WhereQuestion.all {
            let times = try await question.ask(calls, of: app, database)
            figures["\(question.name)_p50"] = .double(percentile(times, 0.5) ?? 0)
            figures["\(question.name)_p99"] = .double(percentile(times, 0.99) ?? 0)
        }
        return figures
    }.result
    await database.close()
    await loop.stop()
    return JSONValue.object(try outcome.get()).text
}

private struct WhereQuestion: Sendable {
    let name: String
    /// The number of matches in a million.
    let matches: Int
    var isCount = false
    let condition: @Sendable (Int) -> JSONValue

    static let all = [
        // A hundred of a million match.
        WhereQuestion(name: "equal", matches: 100) { ["group": JSONValue($0 % 10_000)] },
        // Ten thousand match, of which it reads the first hundred.
        WhereQuestion(name: "first", matches: 100) { ["plan": JSONValue($0 % 100)] },
        WhereQuestion(name: "contains", matches: 100) { random in
            ["tags": ["$all": ["all", .string("tag\(random % 10_000)")]]]
        },
        WhereQuestion(name: "pointer", matches: 3) { random in
            [
                "owner": [
                    "__type": "Pointer", "className": "_User",
                    "objectId": .string("user-\(random % 300_000)"),
                ]
            ]
        },
        WhereQuestion(name: "range", matches: 100) { random in
            let start = random % 900_000
            return ["age": ["$gte": JSONValue(start), "$lt": JSONValue(start + 100)]]
        },
        WhereQuestion(name: "count", matches: 10_000, isCount: true) {
            ["plan": JSONValue($0 % 100)]
        },
        WhereQuestion(name: "channel", matches: 10_000, isCount: true) {
            ["channels": .string("c\($0 % 100)")]
        },
    ]

    func ask(_ calls: Int, of app: String, _ database: PushDatabase) async throws -> [Double] {
        var times: [Double] = []
        // These create the connection and the statement's plan, and load the index' upper pages.
        let warmUp = 200
        for call in 0..<(calls + warmUp) {
            let condition = try Where.parse(condition(Int.random(in: 0..<1_000_000)))
            let start = ContinuousClock.now
            let found: Int
            if isCount {
                found = try await database.installations.count(app: app, where: condition)
            } else {
                found = try await database.installations.query(app: app, where: condition).count
            }
            if call >= warmUp { times.append((ContinuousClock.now - start) / .milliseconds(1)) }
            guard found == matches else {
                throw BenchmarkError("\(name): \(found) found, \(matches) expected")
            }
        }
        return times.sorted()
    }
}
