/// The portions of a batch that are still to be planned, each in one transaction. What takes longer
/// than the database gives a statement is halved, and planned page by page where it is one alone: so
/// nothing is tried for ever in the same way. Pure: no clock, no I/O.
struct PlanQueue<Item> {
    struct Portion {
        var items: [Item]
        /// Nothing of it is planned at once.
        var isInPages = false
    }

    /// The last is the next.
    private var portions: [Portion]

    init(_ items: [Item]) { portions = items.isEmpty ? [] : [Portion(items: items)] }

    var next: Portion? { portions.last }

    /// Removes the next portion, except the events that were left for another transaction.
    mutating func planned(but isDeferred: (Item) -> Bool) {
        guard var portion = portions.popLast() else { return }
        portion.items = portion.items.filter(isDeferred)
        if !portion.items.isEmpty { portions.append(portion) }
    }

    /// One record's fault must not stop the others: alone each shows itself.
    ///
    /// - Returns: The one whose fault it is, where it was alone.
    mutating func refused() -> Item? {
        guard let portion = portions.popLast() else { return nil }
        guard portion.items.count > 1 else { return portion.items.first }
        halve(portion)
        return nil
    }

    /// - Returns: Whether there is another way to plan it.
    mutating func timedOut() -> Bool {
        guard var portion = portions.popLast() else { return false }
        if portion.items.count > 1 {
            halve(portion)
            return true
        }
        defer { portions.append(portion) }
        guard !portion.isInPages else { return false }
        portion.isInPages = true
        return true
    }

    private mutating func halve(_ portion: Portion) {
        let half = portion.items.count / 2
        for items in [portion.items[half...], portion.items[..<half]] {
            portions.append(Portion(items: Array(items), isInPages: portion.isInPages))
        }
    }
}
