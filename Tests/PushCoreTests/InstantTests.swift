import Testing

@testable import PushCore

/// Numbers from outside at every edge: none of them traps, and each gives a time within the range.
@Suite(.timeLimit(.minutes(1)))
struct InstantTests {
    static let edges: [Int64] = {
        var edges: [Int64] = [0, .min, .max, .min / 1000, .max / 1000, .min / 2, .max / 2]
        for power in 0..<63 { edges += [1 << Int64(power), -(1 << Int64(power))] }
        for bound in [Instant.earliest, Instant.latest] {
            edges += [bound.milliseconds, bound.milliseconds / 1000, bound.milliseconds * 1000]
        }
        // The current time, in seconds, milliseconds, microseconds and nanoseconds.
        edges += [
            1_790_000_000, 1_790_000_000_000, 1_790_000_000_000_000, 1_790_000_000_000_000_000,
        ]
        return Set(edges.flatMap { [$0 &- 1, $0, $0 &+ 1] }).sorted()
    }()

    private func isOurs(_ time: Instant) -> Bool {
        let range = Instant.earliest...Instant.latest
        return range.contains(time)
            && Instant(microseconds: time.microseconds) == time
            && range.contains(Instant(seconds: time.seconds))
            && Instant(iso8601: time.iso8601) == time && time.day.utf8.count == 10
    }

    @Test("A number of seconds, milliseconds or microseconds is a time between 0001 and 9999")
    func numbers() {
        for number in Self.edges {
            #expect(isOurs(Instant(milliseconds: number)), "\(number) ms")
            #expect(isOurs(Instant(seconds: number)), "\(number) s")
            #expect(isOurs(Instant(microseconds: number)), "\(number) µs")
        }
    }

    @Test("A larger number is never an earlier time")
    func order() {
        for (low, high) in zip(Self.edges, Self.edges.dropFirst()) {
            #expect(Instant(milliseconds: low) <= Instant(milliseconds: high))
            #expect(Instant(seconds: low) <= Instant(seconds: high))
            #expect(Instant(microseconds: low) <= Instant(microseconds: high))
        }
    }

    @Test("Adding to a time, or subtracting, stays within the same years")
    func sums() {
        for number in Self.edges {
            for start in [Instant.earliest, Instant(milliseconds: 1_790_000_000_000), .latest] {
                let sum = start.adding(milliseconds: number)
                #expect(isOurs(sum))
                #expect(number < 0 ? sum <= start : sum >= start)
                let later = start.adding(.seconds(number))
                #expect(isOurs(later))
                #expect(number < 0 ? later <= start : later >= start)
            }
        }
    }

    @Test("A text whose zone moves it beyond those years is the first or the last of them")
    func texts() {
        #expect(Instant(iso8601: "9999-12-31T23:59:59.999-23:59") == .latest)
        #expect(Instant(iso8601: "0001-01-01T00:00+23:59") == .earliest)
    }

    @Test("A wait of any length is a whole number of milliseconds")
    func durations() {
        for number in Self.edges {
            let wait = Duration.seconds(number).wholeMilliseconds
            #expect(number < 0 ? wait <= 0 : wait >= 0)
            #expect(Duration.milliseconds(number).wholeMilliseconds == number)
        }
        #expect(Duration.seconds(Int64.max).wholeMilliseconds == .max)
        #expect(Duration.seconds(Int64.min).wholeMilliseconds == .min)
        #expect(Duration(secondsComponent: 2, attosecondsComponent: -1).wholeMilliseconds == 1999)
    }
}
