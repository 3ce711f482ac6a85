import Testing

@testable import ServiceKit

@Suite("Turns of apps", .timeLimit(.minutes(1)))
struct AppTurnsTests {
    @Test("Apps take turns, and each one's elements stay in order")
    func turns() {
        var turns = AppTurns<Int>()
        for number in 0..<1000 { turns.append(number, of: "large") }
        turns.append(-1, of: "small")
        #expect(turns.count == 1001)
        #expect(turns.take(atMost: 17) == Array(0..<16) + [-1])
        #expect(turns.take(atMost: 10_000) == Array(16..<1000))
        #expect(turns.isEmpty && turns.count == 0 && turns.take(atMost: 1).isEmpty)
        turns.append(7, of: "large")
        #expect(turns.take(atMost: 5) == [7])
    }
}
