import EventLoop
import Testing

@Suite("Deadline wheel", .timeLimit(.minutes(1))) struct DeadlineWheels {
    @Test("Each deadline fires once at its tick, and a removed one never fires")
    func deadlines() {
        var wheel = DeadlineWheel(buckets: 4)
        // 1, 5 and 9 share a bucket.
        for due in [1, 2, 5, 9] { wheel.add(due, due: Int64(due)) }
        #expect(wheel.count == 4)
        #expect(wheel.advance(to: 1) == [1])
        #expect(wheel.advance(to: 1).isEmpty)
        #expect(wheel.remove(5) == 5)
        #expect(wheel.remove(5) == nil && wheel.remove(1000) == nil)
        #expect(wheel.advance(to: 8) == [2])
        #expect(wheel.advance(to: 9) == [9])
        #expect(wheel.count == 0 && wheel.tick == 9)
    }

    @Test("After a long sleep all due deadlines fire at once, and no others")
    func sleep() {
        var wheel = DeadlineWheel(buckets: 8)
        for number in 0..<100 { wheel.add(number, due: Int64(number)) }
        #expect(Set(wheel.advance(to: 89)) == Set(0..<90))
        #expect(wheel.count == 10)
        // A late deadline is due at the next tick.
        wheel.add(200, due: 3)
        #expect(Set(wheel.advance(to: 90)) == [90, 200])
    }

    @Test("Due deadlines fire in batches, each of them once", arguments: [1, 7, 100])
    func portions(limit: Int) {
        for buckets in [1, 8, 256] {
            var wheel = DeadlineWheel(buckets: buckets)
            for number in 0..<60 { wheel.add(number, due: Int64(1 + number % 20)) }
            var told: [Int] = []
            while wheel.tick < 15 {
                let portion = wheel.advance(to: 15, atMost: limit)
                #expect(portion.count <= limit)
                // A deadline that is added meanwhile fires at its time.
                if told.isEmpty { wheel.add(100, due: 18) }
                told += portion
            }
            #expect(told.sorted() == (0..<60).filter { $0 % 20 < 15 })
            #expect(wheel.count == 16)
            #expect(wheel.advance(to: 20).count == 16)
        }
    }

    @Test("A number can be used again")
    func again() {
        var wheel = DeadlineWheel(buckets: 8)
        wheel.add(0, due: 3)
        wheel.remove(0)
        wheel.add(0, due: 5)
        #expect(wheel.advance(to: 4).isEmpty)
        #expect(wheel.advance(to: 5) == [0])
    }

    @Test("A deadline is put off, never brought forward, and one that is over stays over")
    func putOff() {
        var wheel = DeadlineWheel(buckets: 8)
        for number in 0..<3 { wheel.add(number, due: 5) }
        wheel.putOff(0, until: 20)
        wheel.putOff(1, until: 4)
        wheel.putOff(2, until: -1)
        #expect(wheel.advance(to: 5).sorted() == [1, 2])
        wheel.putOff(1, until: 30)
        wheel.putOff(100, until: 30)
        #expect(wheel.count == 1)
        #expect(wheel.advance(to: 19).isEmpty)
        #expect(wheel.advance(to: 20) == [0])
    }

    @Test("A clock that stops or goes back fires no deadline")
    func backwards() {
        var wheel = DeadlineWheel(buckets: 8)
        wheel.add(0, due: 3)
        #expect(wheel.advance(to: 2).isEmpty)
        #expect(wheel.advance(to: 2).isEmpty && wheel.advance(to: -7).isEmpty)
        #expect(wheel.advance(to: 3) == [0])
    }

    @Test(
        "The wheel agrees with a plain list, whatever is added, removed and awaited",
        arguments: 1...20
    )
    func plainList(seed: UInt64) {
        var state = seed
        func random(_ bound: UInt64) -> Int64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int64((state >> 33) % bound)
        }
        var wheel = DeadlineWheel(buckets: Int(1 + random(16)))
        var list: [Int: Int64] = [:]
        var now: Int64 = 0
        for _ in 0..<2000 {
            let number = Int(random(50))
            switch random(4) {
            case 0:
                #expect(wheel.remove(number) == list.removeValue(forKey: number))
            case 1:
                now += random(random(10) == 0 ? 100 : 4)
                let due = list.filter { $0.value <= now }.keys
                #expect(Set(wheel.advance(to: now)) == Set(due))
                for number in due { list[number] = nil }
            default:
                guard list[number] == nil else { continue }
                let due = now + random(60) - 5
                wheel.add(number, due: due)
                list[number] = max(due, now + 1)
            }
            #expect(wheel.count == list.count)
        }
    }
}
