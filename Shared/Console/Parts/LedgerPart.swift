import PushCore

/// The six outcomes of a push, always in this order, with these shapes, and adding up.
struct LedgerPart {
    let ledger: Ledger
    let t: Words

    private struct Item {
        let name: String
        let title: String
        let count: Int
    }

    private var items: [Item] {
        Outcome.allCases.map { Item(name: $0.style, title: $0.title(t), count: ledger[$0]) }
            + [Item(name: "pending", title: t("Pending"), count: ledger.pending)]
    }

    /// A bar for a row of a table.
    var small: HTML {
        guard ledger.targeted > 0 else { return "<span class=\"faint\">–</span>" }
        return bar(minimum: 1.2, isBig: false)
    }

    /// A bar, its legend with the numbers, and the sum.
    var big: HTML {
        guard ledger.targeted > 0 else {
            return "<p class=\"empty\">\(t("No device was targeted."))</p>"
        }
        let legend = items.map { item -> HTML in
            """
            <div\(item.count == 0 ? " class=\"zero\"" : .empty)>\
            <dt><span class="shape \(item.name)">\(item.title)</span></dt>\
            <dd>\(t.number(item.count)) <small>\(t.share(item.count, of: ledger.targeted))</small>\
            </dd></div>
            """
        }
        let sum = items.map { t.number($0.count) }.joined(separator: " + ")
        return """
            \(bar(minimum: 0.5, isBig: true))
            <dl class="legend">\(legend)</dl>
            <p class="sum">\(t.number(ledger.targeted)) = \(sum)</p>
            """
    }

    private var sentence: String {
        items.filter { $0.count > 0 }.map { "\($0.title) \(t.number($0.count))" }
            .joined(separator: ", ")
    }

    /// Draws the bar. A count other than 0 has at least `minimum` percent of the width, at the
    /// expense of the others.
    private func bar(minimum: Double, isBig: Bool) -> HTML {
        let shown = items.filter { $0.count > 0 }
        let raw = shown.map {
            max(minimum, 100 * Double($0.count) / Double(max(ledger.targeted, 1)))
        }
        let total = raw.reduce(0, +)
        var x = 0.0
        let parts = zip(shown, raw).map { item, width -> HTML in
            let scaled = width * 100 / total
            defer { x += scaled }
            return """
                <rect class="f-\(item.name)" x="\(Self.percent(x))" width="\(Self.percent(scaled))" \
                height="100%"><title>\(item.title) \(t.number(item.count))</title></rect>
                """
        }
        return """
            <svg class="ledger\(isBig ? " big" : .empty)" role="img" aria-label="\(sentence)">\
            \(parts)</svg>
            """
    }

    /// A percentage with two decimals.
    private static func percent(_ value: Double) -> String {
        let hundredths = Int((value * 100).rounded())
        let rest = hundredths % 100
        return "\(hundredths / 100).\(rest < 10 ? "0" : "")\(rest)%"
    }
}

extension PushStatus {
    func pill(_ t: Words) -> HTML {
        switch self {
        case .queued: Part.pill(t("Queued"), .quiet)
        case .scheduled: Part.pill(t("Scheduled"), .quiet)
        case .planning: Part.pill(t("Planning"), .quiet)
        case .sending: Part.pill(t("Sending"), .quiet)
        case .done: Part.pill(t("Done"), .ok)
        case .cancelled: Part.pill(t("Cancelled"), .warn)
        case .failed: Part.pill(t("Failed"), .bad)
        }
    }
}
