import Storage
import Testing

@testable import Dispatcher

@Suite("Decisions about shards", .timeLimit(.minutes(1)))
struct ShardDecisionTests {
    private let unreadable = StorageError(.corrupt, "an installation is for an unknown provider")
    private let away = StorageError(.database, "no connection", isRetryable: true)

    @Test(
        "A shard that the database rejects and that cannot be read keeps its slot for a bounded time"
    )
    func unreadableGoesBack() {
        for (isCancelled, verdict) in [
            (false, UnreadableShard.Verdict.giveBack), (true, .end),
        ] {
            var shard = UnreadableShard()
            for _ in 1..<UnreadableShard.limit {
                #expect(shard.failed(unreadable, isCancelled: isCancelled) == .tryAgain)
            }
            #expect(shard.failed(unreadable, isCancelled: isCancelled) == verdict)
        }
    }

    @Test(
        "A missing database is waited for without a bound, and a lost session ends the wait at once"
    )
    func awayIsWaitedFor() {
        var shard = UnreadableShard()
        for _ in 0..<1000 { #expect(shard.failed(away, isCancelled: false) == .tryAgain) }
        #expect(shard.failed(CancellationError(), isCancelled: false) == .tryAgain)
        let lost = StorageError(.sessionLost, "another took it")
        #expect(shard.failed(lost, isCancelled: true) == .sessionLost)
    }

    @Test(
        "Paced pushes take half of the places, or one at least, and the others take the rest",
        arguments: [
            // The places, those running, those of them with a pace; how many more, and whether
            // paced ones too.
            (limit: 4, running: 0, paced: 0, count: 2, includesPaced: true),
            (limit: 4, running: 1, paced: 1, count: 1, includesPaced: true),
            (limit: 4, running: 2, paced: 2, count: 2, includesPaced: false),
            (limit: 4, running: 3, paced: 0, count: 1, includesPaced: true),
            (limit: 4, running: 4, paced: 0, count: 0, includesPaced: true),
            (limit: 4, running: 5, paced: 5, count: 0, includesPaced: false),
            (limit: 1, running: 0, paced: 0, count: 1, includesPaced: true),
            (limit: 1, running: 1, paced: 1, count: 0, includesPaced: false),
        ]
    )
    func room(_ at: (limit: Int, running: Int, paced: Int, count: Int, includesPaced: Bool)) {
        let room = ShardCapacity(limit: at.limit, running: at.running, paced: at.paced)
        #expect(room.count == at.count)
        #expect(room.includesPaced == at.includesPaced)
    }
}
