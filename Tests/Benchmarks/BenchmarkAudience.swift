internal import EventLoop
internal import FoundationEssentials
import InstallationStorage
internal import JSON
internal import PushCore
internal import PushStorage
import Storage

/// `audience channel APP CHANNEL`: reads every installation of a channel from the stores, and
/// prints how many there were a second, also with the time for finding the bounds of the shards.
/// `audience identity APP IDENTITIES COUNT`: finds the devices of one identity, of `user-0` to
/// `user-(IDENTITIES - 1)` at random and one after another, and prints how long that took.
func measureAudience(_ arguments: [String], server: String?) async throws -> String {
    guard let server else { throw BenchmarkError("DATABASE_URL is not set") }
    let work: @Sendable (PushDatabase, EventLoop) async throws -> JSONValue
    switch (arguments.first, arguments.count) {
    case ("channel", 3):
        work = { try await streamChannel(arguments[2], of: arguments[1], $0, on: $1) }
    case ("identity", 4):
        guard let identities = Int(arguments[2]), identities > 0, let count = Int(arguments[3]),
            count > 0
        else { fallthrough }
        work = { database, _ in
            try await lookUpIdentities(identities, of: arguments[1], count, database)
        }
    default:
        throw BenchmarkError(
            "usage: carillon-bench audience channel APP CHANNEL | identity APP IDENTITIES COUNT"
        )
    }
    let loop = try EventLoop(name: "audience")
    let database = PushDatabase(DatabaseConfiguration(uri: server, connections: 4), on: loop)
    let outcome = await Task(executorPreference: loop) { try await work(database, loop) }.result
    await database.close()
    await loop.stop()
    return try outcome.get().text
}

/// Splits a push to the channel into shards and reads them, four at a time, as a dispatcher does.
private func streamChannel(
    _ channel: String,
    of app: String,
    _ database: PushDatabase,
    on loop: EventLoop
) async throws -> JSONValue {
    let object: JSONObject = [
        "app": .string(app), "channels": [.string(channel)], "data": ["alert": "x"],
    ]
    let push = NewPush(
        id: UUID().uuidString.lowercased(),
        app: app,
        eventSource: "bench",
        eventID: UUID().uuidString,
        object: object,
        request: try PushRequest.parse(object, now: .now()),
        expiresAt: nil
    )
    let session = try await database.sessions.open(name: "bench")
    let clock = ContinuousClock()
    _ = try await database.intake.plan(session: session, [push])
    _ = try await database.planning.claim(session: session)
    let cutting = try await clock.measure {
        while try await !database.planning.planPage(
            session: session,
            pushID: push.id,
            shardSize: 10_000
        ).isFinished {}
    }
    let shards = try await database.shards.claim(session: session, limit: 1000, holding: [:])
    let line = ShardLine(shards.filter { $0.pushID == push.id })
    let reading = try await clock.measure {
        let readers = (0..<4).map { _ in
            Task(executorPreference: loop) {
                while let shard = line.next() { line.rows += try await read(shard, database) }
            }
        }
        for reader in readers { try await reader.value }
    }
    try await database.sessions.close(session)
    let rows = Double(line.rows)
    return [
        "rows": JSONValue(line.rows), "per_second": .double(rows / (reading / .seconds(1))),
        "with_cut": .double(rows / ((cutting + reading) / .seconds(1))),
    ]
}

private func read(_ shard: ClaimedShard, _ database: PushDatabase) async throws -> Int {
    var rows = 0
    var last: String?
    while true {
        let page = try await database.shards.page(shard, after: last, limit: 5000)
        guard page.members.allSatisfy({ $0.device.token.utf8.count == 64 }) else {
            throw BenchmarkError("the installations are not those that were stored")
        }
        rows += page.members.count
        last = page.members.last?.key.target
        if page.isLast { return rows }
    }
}

/// The shards to be read, and the rows read so far. Confined to one loop.
private final class ShardLine: @unchecked Sendable {
    private var shards: ArraySlice<ClaimedShard>
    var rows = 0

    init(_ shards: [ClaimedShard]) { self.shards = shards[...] }

    func next() -> ClaimedShard? { shards.popFirst() }
}

private func lookUpIdentities(
    _ identities: Int,
    of app: String,
    _ count: Int,
    _ database: PushDatabase
) async throws -> JSONValue {
    var times: [Double] = []
    // These create the connection and the statement's plan, and load the index' upper pages.
    let warmUp = 100
    for call in 0..<(count + warmUp) {
        var filter = InstallationStore.Filter()
        filter.identity = "user-\(Int.random(in: 0..<identities))"
        let start = ContinuousClock.now
        let devices = try await database.installations.query(app: app, filter)
        if call >= warmUp { times.append((ContinuousClock.now - start) / .milliseconds(1)) }
        guard !devices.isEmpty else { throw BenchmarkError("an identity has no devices") }
    }
    times.sort()
    return [
        "p50": .double(percentile(times, 0.5) ?? 0), "p99": .double(percentile(times, 0.99) ?? 0),
    ]
}
