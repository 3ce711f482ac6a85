import Testing

@testable import Dispatcher

@Suite("The rate limit of a push with a pace", .timeLimit(.minutes(1)))
struct PaceBucketTests {
    private let start: Int64 = 1_795_000

    @Test(
        "A paced push is sent evenly, at most a tenth above its pace in any second",
        arguments: [1, 7, 1000]
    )
    func evenly(pace: Int) {
        var bucket = PaceBucket(perSecond: Double(pace))
        var sent: [(at: Int64, count: Int)] = []
        // Takes more than there is, at odd moments.
        for time in stride(from: Int64(0), to: 20_000, by: 37) {
            sent.append((time, bucket.take(500, at: start + time)))
        }
        let total = sent.reduce(0) { $0 + $1.count }
        #expect(total >= pace * 19)
        #expect(total <= pace * 20 + pace / 10 + 1)
        for begin in stride(from: Int64(0), to: 19_000, by: 500) {
            let inSecond = sent.filter { $0.at >= begin && $0.at < begin + 1000 }
                .reduce(0) { $0 + $1.count }
            #expect(inSecond <= pace + pace / 10 + 1)
        }
    }

    @Test("Unused sends are given back")
    func givesBack() {
        var bucket = PaceBucket(perSecond: 100)
        #expect(bucket.take(500, at: start) == 10)
        #expect(bucket.take(1, at: start) == 0)
        bucket.giveBack(4)
        #expect(bucket.take(500, at: start) == 4)
    }

    @Test("A pace can be slower than one a second")
    func slowly() {
        // Three are sent in 30 seconds.
        var bucket = PaceBucket(perSecond: 0.1)
        var sent: [Int64] = []
        for time in stride(from: Int64(0), to: 31_000, by: 50) where sent.count < 3 {
            if bucket.take(3 - sent.count, at: start + time) == 1 { sent.append(time) }
        }
        #expect(sent == [0, 10_000, 20_000])
    }

    @Test("Reservations of single devices are due one after the other")
    func reserves() {
        var bucket = PaceBucket(perSecond: 10)
        let due = (0..<30).map { _ in bucket.reserve(at: start) }
        #expect(due[0] == nil)
        #expect(due[29] == 2900)
        let times = due.compactMap { $0 }
        #expect(times.count == 28)
        #expect(times == times.sorted())
    }
}
