/// The positions of a chart in its box of 600 × 100. Pure.
struct ChartGeometry: Equatable {
    static let width = 600
    static let height = 100

    /// The number of columns.
    let count: Int
    /// The value at the upper edge.
    let top: Int
    /// The distance between two lines of the grid.
    let step: Int

    /// - Parameters:
    ///   - count: The number of columns.
    ///   - most: The largest value.
    init(count: Int, most: Int) {
        self.count = max(1, count)
        let most = max(1, most)
        step = Self.step(for: most)
        top = step * max(2, (most + step - 1) / step)
    }

    /// Returns the least of 1, 2 or 5 × 10ⁿ with which three lines are above every value.
    private static func step(for most: Int) -> Int {
        var power = 1
        while true {
            for factor in [1, 2, 5] where (most - 1) / (power * factor) < 3 {
                return power * factor
            }
            let (next, overflow) = power.multipliedReportingOverflow(by: 10)
            if overflow { return power }
            power = next
        }
    }

    /// The values of the grid's lines, the highest first; three or four.
    var ticks: [Int] { Array(stride(from: top, through: 0, by: -step)) }

    /// Returns the left edge of a column, or the right edge of the one before.
    func x(_ column: Int) -> Int { column * Self.width / count }

    func middle(_ column: Int) -> Int { (x(column) + x(column + 1)) / 2 }

    /// Returns the height of a value from the upper edge, in tenths.
    func y(_ value: Int) -> Int {
        let share = min(max(0, Double(value) / Double(top)), 1)
        return Int((Double(Self.height * 10) * (1 - share)).rounded())
    }

    /// Writes tenths: `12.5`.
    static func text(_ tenths: Int) -> String {
        tenths % 10 == 0 ? String(tenths / 10) : "\(tenths / 10).\(tenths % 10)"
    }

    // MARK: Paths

    /// Returns the path of the grid's lines, without the one at 0.
    var grid: String {
        ticks.dropLast().map { "M0 \(Self.text(y($0)))H\(Self.width)" }.joined()
    }

    /// Returns the columns of each series, stacked in their order from below. A value other than 0
    /// has at least one unit of height, at the expense of those above it.
    func columns(_ series: [[Int?]]) -> [String] {
        var bases = Array(repeating: Self.height * 10, count: count)
        return series.map { values in
            var path = ""
            for (column, value) in values.enumerated().prefix(count) {
                guard let value, value > 0 else { continue }
                let height = max(10, Self.height * 10 - y(value))
                let base = bases[column]
                let end = max(0, base - height)
                bases[column] = end
                let right = max(x(column) + 1, x(column + 1) - 1)
                path +=
                    "M\(x(column)) \(Self.text(base))V\(Self.text(end))H\(right)V\(Self.text(base))Z"
            }
            return path
        }
    }

    /// Returns a line through the values, interrupted where there is none. A value between two gaps
    /// is a short line.
    func line(_ values: [Int?]) -> String {
        var path = ""
        var isDrawing = false
        for (column, value) in values.enumerated().prefix(count) {
            guard let value else {
                isDrawing = false
                continue
            }
            let height = Self.text(y(value))
            let isAlone = column + 1 >= values.count || values[column + 1] == nil
            if isDrawing {
                path += "L\(middle(column)) \(height)"
            } else if isAlone {
                path += "M\(max(0, middle(column) - 2)) \(height)h4"
            } else {
                path += "M\(middle(column)) \(height)"
            }
            isDrawing = true
        }
        return path
    }

    /// Returns the areas of series whose values only grow, stacked in their order from below. Each
    /// value is the one at its column's end; all begin at 0.
    func areas(_ series: [[Int]]) -> [String] {
        var base = Array(repeating: 0, count: count + 1)
        return series.map { values in
            guard let last = values.last, last > 0 else { return "" }
            let upper = zip(base, [0] + values).map(+)
            let points = upper.indices.map { "\(x($0)) \(Self.text(y(upper[$0])))" }
            let back = base.indices.reversed().map { "\(x($0)) \(Self.text(y(base[$0])))" }
            base = upper
            return "M" + (points + back).joined(separator: "L") + "Z"
        }
    }
}
