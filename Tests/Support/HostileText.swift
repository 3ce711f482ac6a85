/// Strings that differ in their bytes and are equivalent in Unicode: "a" under the same combining
/// marks in another order. To Swift's `String` all of them are one key with one hash.
package enum HostileText {
    private static let marks: [Unicode.Scalar] = [
        "\u{334}", "\u{327}", "\u{31B}", "\u{316}", "\u{301}", "\u{360}", "\u{345}",
    ]

    /// Returns different keys of 15 bytes, at most 5,040.
    package static func keys(_ count: Int) -> [String] {
        (0..<count).map { number in
            var rest = marks
            var number = number
            var text = "a"
            while !rest.isEmpty {
                text.unicodeScalars.append(rest.remove(at: number % rest.count))
                number /= rest.count + 1
            }
            return text
        }
    }

    /// Returns the same number of ordinary keys with as many bytes, which are not ASCII.
    package static func benignKeys(_ count: Int) -> [String] {
        (0..<count).map { number in
            let digits = String(number)
            return "ключи" + String(repeating: "0", count: 5 - digits.count) + digits
        }
    }

    /// Returns one letter under this many marks, out of order: as one string it is sorted by
    /// insertion.
    package static func tower(_ count: Int) -> String {
        var text = "a"
        var state: UInt64 = 1
        for _ in 0..<count {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            text.unicodeScalars.append(marks[Int((state >> 33) % 7)])
        }
        return text
    }

    /// Returns how many times the processor time of `cheap` the call of `dear` takes: the minimum
    /// of several rounds of each, in turns.
    package static func costRatio(of dear: () -> Void, to cheap: () -> Void) -> Double {
        var (least, leastOfCheap) = (Duration.seconds(3600), Duration.seconds(3600))
        for _ in 0..<3 {
            leastOfCheap = min(leastOfCheap, processorTime(cheap))
            least = min(least, processorTime(dear))
        }
        return least / max(leastOfCheap, .microseconds(1))
    }
}
