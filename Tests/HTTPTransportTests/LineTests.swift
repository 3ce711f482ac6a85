import EventLoop
import HTTPServer
import Support
import Testing

@testable import HTTPTransport

private let fine = HTTPServerResponse(status: 200)

private func paths(_ count: Int, _ prefix: String = "/") -> [String] {
    (0..<count).map { "\(prefix)\($0)" }
}

extension RequestQueue {
    /// Returns the next of any owner, without limits.
    fileprivate mutating func next() -> Int? { next { _ in true } }
}

@Suite("Queue for a stream", .timeLimit(.minutes(1))) struct WaitingLines {
    @Test("Urgent requests go first, and returned ones before those that were never sent")
    func order() {
        var line = RequestQueue()
        for number in 0..<3 { line.add(number, of: 0, isUrgent: false) }
        line.add(10, of: 0, isUrgent: true)
        line.add(11, of: 0, isUrgent: true)
        line.putBack(20, of: 0, isUrgent: false)
        line.putBack(12, of: 0, isUrgent: true)
        #expect(line.live == 7)
        #expect((0..<7).compactMap { _ in line.next() } == [12, 10, 11, 20, 0, 1, 2])
        #expect(line.next() == nil && line.live == 0)
    }

    @Test("Every eighth turn is for the others, however many urgent requests come")
    func share() {
        var line = RequestQueue()
        for number in 0..<4 { line.add(number, of: 0, isUrgent: false) }
        for number in 100..<130 { line.add(number, of: 0, isUrgent: true) }
        // The first of the others was abandoned: its turn is the next one's.
        line.left()
        var taken: [Int] = []
        while let number = line.next() {
            if number == 0 { line.passed() } else { taken.append(number) }
        }
        let expected =
            Array(100..<107) + [1] + Array(107..<114) + [2] + Array(114..<121) + [3]
            + Array(121..<130)
        #expect(taken == expected)
    }

    @Test("Owners take turns, however many requests one of them has in the queue")
    func turns() {
        var line = RequestQueue()
        for number in 0..<1000 { line.add(number, of: 0, isUrgent: true) }
        for number in 2000..<2003 { line.add(number, of: 7, isUrgent: true) }
        line.add(3000, of: 2, isUrgent: true)
        let first = (0..<8).compactMap { _ in line.next() }
        #expect(first == [0, 2000, 3000, 1, 2001, 2, 2002, 3])
        #expect(line.next() == 4 && line.live == 995)
    }

    @Test("An owner at its limit is skipped, and keeps its place in the queue")
    func heldBack() {
        var line = RequestQueue()
        for number in 0..<10 { line.add(number, of: 0, isUrgent: true) }
        for number in 20..<30 { line.add(number, of: 0, isUrgent: false) }
        line.add(40, of: 1, isUrgent: false)
        #expect(line.next { $0 == 1 } == 40)
        #expect(line.next { $0 == 1 } == nil)
        #expect(line.live == 20)
        #expect(line.next() == 0)
    }

    @Test("Abandoned requests free their space at any place in the queue")
    func gone() {
        var line = RequestQueue()
        for number in 0..<100 { line.add(number, of: number % 3, isUrgent: number % 2 == 0) }
        #expect(line.next() == 0 && !line.hasManyGone)
        for _ in 0..<60 { line.left() }
        #expect(line.live == 39 && line.hasManyGone)
        let removed = line.removeGone { $0 < 61 }
        #expect(Set(removed) == Set(1..<61) && line.live == 39 && !line.hasManyGone)
        let rest = (0..<39).compactMap { _ in line.next() }
        #expect(Set(rest) == Set(61..<100) && line.next() == nil)
    }

    @Test("A share leaves slots for the next owner, and an owner without any gets the last")
    func shares() {
        for total in 1...200 {
            var free = total
            for _ in 0..<3 {
                var held = 0
                while FairShare.admits(holding: held, free: free) {
                    #expect(FairShare.room(holding: held, free: free) >= 1)
                    (held, free) = (held + 1, free - 1)
                }
                #expect(FairShare.room(holding: held, free: free) == 0)
                #expect(free == 0 || held >= 3 * free)
            }
            #expect(total < 64 || free > 0)
            #expect(FairShare.room(holding: 0, free: total) == total - leftBy(one: total))
        }
    }

    private func leftBy(one total: Int) -> Int {
        var held = 0
        while FairShare.admits(holding: held, free: total - held) { held += 1 }
        return total - held
    }
}

@Suite("Lanes and withdrawal of requests", .timeLimit(.minutes(2))) struct PoolLanes {
    @Test("An urgent request overtakes all that wait for a stream")
    func urgent() async throws {
        let gate = Gate()
        try await withLocalServer(maxConcurrentStreams: 1) { _ in
            await gate.wait()
            return fine
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 1 }
            ) { bench in
                let broadcast = try await bench.start(paths(50))
                _ = try await eventually("a request") { server.received.isEmpty ? nil : () }
                let urgent = try await bench.start(["/urgent"], isUrgent: true)
                await gate.open()
                _ = try await eventually("all") { broadcast.all(50) }
                #expect(urgent.all(1)?.first?.status == 200)
                let order = server.received.map(\.path)
                #expect(order == ["/0", "/urgent"] + paths(50).dropFirst())
            }
        }
    }

    @Test("A withdrawn request ends at once and is never sent, and those of other owners continue")
    func withdraw() async throws {
        final class Owner {}
        let (mine, theirs) = (Owner(), Owner())
        let gate = Gate()
        try await withLocalServer(maxConcurrentStreams: 10) { _ in
            await gate.wait()
            return fine
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 1 }
            ) { bench in
                let first = try await bench.start(paths(20, "/a"), of: ObjectIdentifier(mine))
                // Some streams are reserved for other owners, which use them.
                _ = try await eventually("requests") { server.received.count == 8 ? () : nil }
                let second = try await bench.start(paths(5, "/b"), of: ObjectIdentifier(theirs))
                _ = try await eventually("theirs") { server.received.count == 10 ? () : nil }
                try await loop.onLoop { [id = ObjectIdentifier(mine)] in
                    bench.pool.withdraw(of: id)
                    #expect(bench.pool.requestsInside == 13)
                    #expect(bench.pool.requestsWaiting == 3)
                }
                await gate.open()
                let all = try await eventually("all") { first.all(20) }
                #expect(all.prefix(8).allSatisfy { $0.status == 200 })
                for result in all.dropFirst(8) {
                    #expect(result.error?.kind == .withdrawn)
                    #expect(result.error?.requestWasNotSent == true)
                }
                let others = try await eventually("the others") { second.all(5) }
                #expect(others.allSatisfy { $0.status == 200 })
                #expect(Set(server.received.map(\.path)) == Set(paths(8, "/a") + paths(5, "/b")))
                #expect(try await bench.send(["/last"]).first?.status == 200)
                _ = (mine, theirs)
            }
        }
    }

    @Test("A request that was withdrawn in flight is not sent again when the peer refuses it")
    func refusedAfterwards() async throws {
        let gate = Gate()
        try await withLocalServer(maxConcurrentStreams: 10) { _ in
            await gate.wait()
            return HTTPServerResponse(status: 200, ending: { $0.reset(code: 7) })
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 1 }
            ) { bench in
                let results = try await bench.start(paths(10))
                _ = try await eventually("requests") { server.received.count == 10 ? () : nil }
                try await loop.onLoop {
                    bench.pool.withdraw()
                    #expect(bench.pool.requestsInside == 10)
                }
                await gate.open()
                let all = try await eventually("all") { results.all(10) }
                #expect(all.allSatisfy { $0.error?.kind == .withdrawn })
                #expect(all.allSatisfy { $0.error?.requestWasNotSent == true })
                #expect(server.received.count == 10)
            }
        }
    }

    @Test("Without an owner all are withdrawn, and a completion may send again")
    func withdrawAll() async throws {
        try await withLocalServer(maxConcurrentStreams: 1) { _ in
            HTTPServerResponse(status: 200, ending: { _ in })
        } _: { server, loop in
            try await PoolBench.run(
                server.origin,
                loop,
                caFile: server.caFile,
                change: { $0.maximumConnections = 1 }
            ) { bench in
                let results = Results()
                let request = HTTP2Request(
                    try HTTP2RequestHead(origin: try HTTP2Origin(server.origin), headers: []),
                    path: "/"
                )
                try await loop.onLoop { [pool = bench.pool] in
                    let requests = [HTTP2Request](repeating: request, count: 5)
                    pool.send(requests) { index, result in
                        results.add(index, result)
                        pool.send([request]) { results.add(10 + index, $1) }
                    }
                }
                _ = try await eventually("a request") { server.received.isEmpty ? nil : () }
                try await loop.onLoop { [pool = bench.pool] in
                    pool.withdraw()
                    #expect(pool.requestsInside == 5 && pool.requestsWaiting == 4)
                    pool.withdraw()
                    #expect(pool.requestsInside == 1 && pool.requestsWaiting == 0)
                }
                #expect(server.received.count == 1)
            }
        }
    }
}
