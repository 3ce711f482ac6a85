/// The portions of a batch that are still to be planned, each in one transaction. A portion that
/// exceeds the statement timeout is halved. A single event that exceeds it is planned page by page.
/// So the same attempt is never repeated for ever. Pure: no clock, no I/O.
struct PlanQueue<Item> {
    struct Portion {
        var items: [Item]
        /// Whether its event is planned page by page, and not in one transaction.
        var isInPages = false
    }

    /// A stack: the last portion is planned next.
    private var portions: [Portion]

    init(_ items: [Item]) { portions = items.isEmpty ? [] : [Portion(items: items)] }

    var next: Portion? { portions.last }

    /// Removes the next portion, except the events that were left for another transaction.
    mutating func planned(but isDeferred: (Item) -> Bool) {
        guard var portion = portions.popLast() else { return }
        portion.items = portion.items.filter(isDeferred)
        if !portion.items.isEmpty { portions.append(portion) }
    }

    /// Halves the next portion after Postgres refused it, so that the faulty event is found and the
    /// others are planned.
    ///
    /// - Returns: The faulty event, if the portion had no other; `nil` otherwise.
    mutating func refused() -> Item? {
        guard let portion = portions.popLast() else { return nil }
        guard portion.items.count > 1 else { return portion.items.first }
        halve(portion)
        return nil
    }

    /// Changes the next portion after a statement timeout: halves it, or plans its only event in
    /// pages.
    ///
    /// - Returns: `false` if there is no other way to plan it.
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
