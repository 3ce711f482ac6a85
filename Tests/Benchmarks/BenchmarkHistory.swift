internal import EventLoop
internal import JSON
internal import PushCore
internal import PushStorage
import Storage
import StorageAdmin

/// `history DAYS`: has Carillon's maintenance make the partitions of this many past days, as it
/// would have made them then.
func makeDays(_ arguments: [String], server: String?) async throws -> String {
    guard let server else { throw BenchmarkError("DATABASE_URL is not set") }
    guard arguments.count == 1, let days = Int(arguments[0]), (1...100).contains(days) else {
        throw BenchmarkError("usage: carillon-bench history DAYS")
    }
    let loop = try EventLoop(name: "history")
    let database = PushDatabase(DatabaseConfiguration(uri: server, connections: 1), on: loop)
    let outcome = await Task(executorPreference: loop) {
        var made = 0
        for age in (0...days).reversed() {
            let then = Instant.now().adding(milliseconds: -Int64(age) * 86_400_000)
            made += try await database.maintenance.maintain(now: then).partitionsCreated
        }
        return made
    }.result
    await database.close()
    await loop.stop()
    let figures: JSONValue = ["made": JSONValue(try outcome.get())]
    return figures.text
}
