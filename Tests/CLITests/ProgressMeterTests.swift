import PushCore
import Testing

@testable import CLI

@Suite("Speed of a push", .timeLimit(.minutes(1)))
struct ProgressMeterTests {
    private func meter(_ samples: [(done: Int, second: Int64)]) -> ProgressMeter {
        var meter = ProgressMeter()
        for sample in samples {
            meter.take(done: sample.done, at: Instant(seconds: sample.second))
        }
        return meter
    }

    @Test("A single sample gives no rate and no remaining time")
    func needsTwo() {
        #expect(meter([]).rate == nil)
        #expect(meter([(10, 0)]).rate == nil)
        #expect(meter([(10, 0)]).secondsLeft(pending: 5) == nil)
        #expect(meter([(10, 0)]).secondsLeft(pending: 0) == 0)
        // The clock did not advance.
        #expect(meter([(10, 0), (20, 0)]).rate == nil)
    }

    @Test("The rate is that of the last ten seconds")
    func forgets() {
        let steady = meter((0...5).map { (Int($0) * 100, $0) })
        #expect(steady.rate == 100)
        #expect(steady.secondsLeft(pending: 1001) == 11)
        let faster = meter(
            (0...20).map { ($0 <= 10 ? Int($0) * 10 : 100 + Int($0 - 10) * 500, $0) }
        )
        #expect(faster.rate == 500)
    }

    @Test("A push without progress has no remaining time, whatever its earlier rate")
    func stalls() {
        let stalled = meter([(0, 0), (1000, 1)] + (2...12).map { (1000, $0) })
        #expect(stalled.rate == 0)
        #expect(stalled.secondsLeft(pending: 1) == nil)
        // A count that decreases, as when more turned out to be pending, gives no rate.
        #expect(meter([(100, 0), (50, 1)]).rate == 0)
    }

    @Test("Progress is shown with its share, which never exceeds 100 %")
    func shares() {
        #expect(ProgressMeter.share(0, of: 0) == "0/0")
        #expect(ProgressMeter.share(12, of: 40) == "12/40 (30.0 %)")
        #expect(ProgressMeter.share(2, of: 3) == "2/3 (66.6 %)")
        #expect(ProgressMeter.share(41, of: 40) == "41/40 (100.0 %)")
    }

    @Test(
        "The remaining time is shown in its two largest units",
        arguments: [
            (-1, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (61, "1 min 1 s"),
            (3600, "1 h"), (3601, "1 h"), (3725, "1 h 2 min"), (90_000, "1 d 1 h"),
            (86_401, "1 d"),
        ]
    )
    func tells(seconds: Int, text: String) {
        #expect(ProgressMeter.text(seconds: seconds) == text)
    }
}
