import ConnectionStorage
import Observability
import PushCore
import PushProviders
import Testing

@testable import Dispatcher

@Suite("Writes of messages for connections", .timeLimit(.minutes(1)))
struct ConnectionProviderTests {
    /// A store whose writes end by hand.
    @DispatchLoop
    private final class Bench {
        private(set) var provider: ConnectionProvider?
        /// The targets of each write.
        private(set) var writes: [[String]] = []
        private(set) var ended: [String] = []
        private var underWay: [CheckedContinuation<Void, Never>] = []

        init() {
            provider = ConnectionProvider(
                log: .disabled,
                keep: { [unowned self] messages in await self.keep(messages) },
                notify: {}
            )
        }

        private func keep(_ messages: [NewMessage]) async -> Set<String> {
            writes.append(messages.map(\.target))
            await withCheckedContinuation { underWay.append($0) }
            return []
        }

        func send(_ targets: [String], of app: String) {
            let payload = RenderedPayload(
                platform: .connection,
                headers: [],
                body: Array("{}".utf8),
                repeatOverwrites: true
            )
            let notifications = targets.map { target in
                OutgoingNotification(
                    notificationID: "id-\(target)",
                    target: DeviceTarget(provider: .connection, token: target),
                    payload: payload,
                    delivery: .init(app: app, pushID: "p", eventID: "e", target: target)
                )
            }
            provider?.client(of: app).send(notifications) { [self] index, _ in
                DispatchLoop.assumeIsolated { ended.append(targets[index]) }
            }
        }

        func endFirst() async {
            await wait { !underWay.isEmpty }
            underWay.removeFirst().resume()
        }

        func wait(until condition: () -> Bool) async {
            while !condition() { await Task.yield() }
        }
    }

    private func onLoop(_ body: @escaping @DispatchLoop (Bench) async -> Void) async {
        await DispatchLoop.task { await body(Bench()) }.value
    }

    @Test("Messages that arrive during a write are the next one, as a whole")
    func batches() async {
        await onLoop { bench in
            bench.send(["a"], of: "shop")
            await bench.wait { bench.writes.count == 1 }
            bench.send(["b"], of: "shop")
            bench.send(["c"], of: "other")
            await bench.endFirst()
            await bench.wait { bench.writes.count == 2 }
            #expect(bench.writes == [["a"], ["b", "c"]])
            await bench.endFirst()
            await bench.wait { bench.ended.count == 3 }
        }
    }

    @Test(
        "A full batch does not wait for the write under way, and no more than four are written at once"
    )
    func fullBatches() async {
        await onLoop { bench in
            bench.send(["a"], of: "shop")
            await bench.wait { bench.writes.count == 1 }
            bench.send((0..<2000).map(String.init), of: "shop")
            await bench.wait { bench.writes.count == 4 }
            #expect(bench.writes.dropFirst().allSatisfy { $0.count == 256 })
            for _ in 0..<3 { await Task.yield() }
            #expect(bench.writes.count == 4)
            while bench.ended.count < 2001 {
                await bench.endFirst()
                let ended = bench.ended.count
                await bench.wait { bench.ended.count > ended }
            }
        }
    }

    @Test("A write that waits for another session delays the others for a short time only")
    func slow() async {
        await onLoop { bench in
            bench.send(["slow"], of: "shop")
            await bench.wait { bench.writes.count == 1 }
            bench.send(["b"], of: "other")
            // The first write never ends before the second.
            await bench.wait { bench.writes.count == 2 }
            #expect(bench.writes == [["slow"], ["b"]])
            await bench.endFirst()
            await bench.endFirst()
            await bench.wait { bench.ended.count == 2 }
        }
    }
}
