import Testing

@testable import Ingest

@Suite("The memory of uploads that are being decoded", .timeLimit(.minutes(1)))
struct RealmGateTests {
    @Test("No upload waits for a larger kind")
    func kinds() async {
        // The lanes of small and of large ones have 512 each; small ones are at most 128.
        let gate = RealmGate(limit: 1024)
        await gate.enter("shop", cost: 5000)
        await gate.enter("shop", cost: 500)
        await gate.enter("shop", cost: 100)
        await gate.enter("other", cost: 100)
    }

    @Test("An app leaves half of a lane to others, and its own waits until there is room")
    func halves() async {
        let gate = RealmGate(limit: 1024)
        for _ in 0..<2 { await gate.enter("shop", cost: 128) }
        let third = Task { await gate.enter("shop", cost: 128) }
        // They do not wait for the app's third one, whether that has come already or not.
        for _ in 0..<2 { await gate.enter("other", cost: 128) }
        gate.leave("other", cost: 128)
        gate.leave("shop", cost: 128)
        await third.value
    }

    @Test("Oversize ones are decoded one after the other, and apps take turns")
    func turns() async {
        let gate = RealmGate(limit: 1024)
        await gate.enter("shop", cost: 5000)
        let waiting = ["shop", "other", "third"].map { app in
            Task {
                await gate.enter(app, cost: 4000)
                gate.leave(app, cost: 4000)
            }
        }
        gate.leave("shop", cost: 5000)
        for task in waiting { await task.value }
        await gate.enter("shop", cost: 5000)
    }
}
