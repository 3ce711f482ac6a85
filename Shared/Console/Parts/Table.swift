/// A table whose rows become blocks on a phone. The first cell names its row.
struct Table {
    struct Column {
        enum Kind { case text, number, actions }

        let title: String
        var kind = Kind.text
        /// From which width on it is shown: 0 always, 1 and 2 on wider screens.
        var width = 0

        init(_ title: String, _ kind: Kind = .text, width: Int = 0) {
            self.title = title
            self.kind = kind
            self.width = width
        }

        fileprivate var classes: String {
            let kinds = [Kind.text: "", .number: "num", .actions: "right"]
            let hidden = width > 0 ? " w\(width)" : ""
            return (kinds[kind] ?? "") + hidden
        }
    }

    /// Read by screen readers.
    let caption: String
    let columns: [Column]
    var rows: [[HTML]]
    /// Shown in place of an empty table.
    var empty: HTML = .empty

    var html: HTML {
        guard !rows.isEmpty else { return "<div class=\"empty\">\(empty)</div>" }
        let head = columns.map { column -> HTML in
            let title: HTML =
                column.kind == .actions
                ? "<span class=\"hidden\">\(column.title)</span>" : HTML(text: column.title)
            return """
                <th role="columnheader" scope="col" class="\(column.classes)">\(title)</th>
                """
        }
        return """
            <div class="table" tabindex="0" role="region" aria-label="\(caption)">
            <table role="table"><caption class="hidden">\(caption)</caption>
            <thead role="rowgroup"><tr role="row">\(head)</tr></thead>
            <tbody role="rowgroup">\(rows.map(row))</tbody></table></div>
            """
    }

    private func row(_ cells: [HTML]) -> HTML {
        let drawn = zip(columns, cells).enumerated().map { index, pair -> HTML in
            let (column, cell) = pair
            if index == 0 {
                return """
                    <th role="rowheader" scope="row" class="\(column.classes)">\(cell)</th>
                    """
            }
            return """
                <td role="cell" class="\(column.classes)" data-label="\(column.title)">\(cell)</td>
                """
        }
        return "<tr role=\"row\">\(drawn)</tr>\n"
    }
}

/// A list of names and values.
struct KeyValues {
    var items: [(String, HTML)] = []

    mutating func add(_ name: String, _ value: HTML?) {
        if let value, !value.isEmpty { items.append((name, value)) }
    }

    mutating func add(_ name: String, text: String?) {
        if let text, !text.isEmpty { items.append((name, HTML(text: text))) }
    }

    var html: HTML {
        let drawn = items.map { name, value -> HTML in "<dt>\(name)</dt><dd>\(value)</dd>" }
        return "<dl class=\"kv\">\(drawn)</dl>"
    }
}

/// Small parts of pages.
enum Part {
    static func card(_ title: String, id: String = "", _ body: HTML) -> HTML {
        let name: HTML = id.isEmpty ? .empty : " id=\"\(id)\""
        return """
            <section class="card"\(name)><h2>\(title)</h2>
            \(body)
            </section>
            """
    }

    enum Tone: String { case ok, bad, warn, quiet }

    static func pill(_ text: String, _ tone: Tone) -> HTML {
        "<span class=\"pill \(tone.rawValue)\">\(text)</span>"
    }

    static func note(_ text: HTML, _ tone: Tone) -> HTML {
        "<div class=\"note \(tone.rawValue)\"><p>\(text)</p></div>"
    }

    /// Text of an app or a person: its direction is its own, and it is never translated.
    static func own(_ text: String) -> HTML { "<bdi translate=\"no\">\(text)</bdi>" }

    static func code(_ text: String) -> HTML { "<code translate=\"no\">\(text)</code>" }

    /// Text to copy, with a button that needs the script.
    static func block(_ text: String, id: String, _ t: Words) -> HTML {
        """
        <figure class="code"><pre id="\(id)" tabindex="0" translate="no"><code>\(text)</code></pre>\
        <button type="button" class="btn small" data-copy="#\(id)" hidden>\(t("Copy"))</button>\
        </figure>
        """
    }

    /// The form of a list's filter: its values are part of the address.
    static func filter(_ address: Address, _ fields: HTML, _ button: String) -> HTML {
        """
        <form class="filters" method="get" action="\(address)" role="search" data-swap="#list">
        \(fields)
        <button class="btn">\(button)</button>
        </form>
        """
    }

    /// A link to the next page of a list by time.
    static func pager(older: Address?, newest: Address?, _ t: Words) -> HTML {
        pages(next: older, t("Older"), first: newest, t("Newest"), t)
    }

    /// A link to the next page of a list by name.
    static func pages(next: Address?, first: Address?, _ t: Words) -> HTML {
        pages(next: next, t("Next"), first: first, t("First"), t)
    }

    private static func pages(
        next: Address?,
        _ nextTitle: String,
        first: Address?,
        _ firstTitle: String,
        _ t: Words
    ) -> HTML {
        let first = first.map { address -> HTML in
            "<a class=\"btn\" href=\"\(address)\">\(firstTitle)</a>"
        }
        let next = next.map { address -> HTML in
            "<a class=\"btn\" href=\"\(address)\" rel=\"next\">\(nextTitle)</a>"
        }
        if first == nil, next == nil { return .empty }
        return "<nav class=\"pager\" aria-label=\"\(t("Pages"))\">\(first)\(next)</nav>"
    }
}

/// A field of a form: label, hint, control and error, linked to each other.
struct Field {
    let name: String
    let label: String
    var hint: HTML = .empty
    var error: String?

    init(_ name: String, _ label: String, hint: HTML = .empty, error: String? = nil) {
        self.name = name
        self.label = label
        self.hint = hint
        self.error = error
    }

    private func wrapped(_ control: HTML) -> HTML {
        let shownHint: HTML =
            hint.isEmpty ? .empty : "<p class=\"hint\" id=\"\(name)-hint\">\(hint)</p>"
        let shownError = error.map { error -> HTML in
            "<p class=\"error\" id=\"\(name)-error\">\(error)</p>"
        }
        return """
            <div class="field"><label for="\(name)">\(label)</label>
            \(control)\(shownHint)\(shownError)</div>
            """
    }

    private var attributes: HTML {
        var described: [String] = []
        if !hint.isEmpty { described.append(name + "-hint") }
        if error != nil { described.append(name + "-error") }
        let invalid: HTML = error == nil ? .empty : " aria-invalid=\"true\""
        guard !described.isEmpty else { return invalid }
        return "\(invalid) aria-describedby=\"\(described.joined(separator: " "))\""
    }

    /// Draws a control of one line; browsers offer the suggestions while a person types.
    func input(
        _ value: String,
        type: String = "text",
        isRequired: Bool = false,
        suggestions: [String] = []
    ) -> HTML {
        let list: HTML = suggestions.isEmpty ? .empty : " list=\"\(name)-list\""
        let options = suggestions.map { text -> HTML in "<option value=\"\(text)\"></option>" }
        let offered: HTML =
            suggestions.isEmpty ? .empty : "<datalist id=\"\(name)-list\">\(options)</datalist>"
        return wrapped(
            """
            <input id="\(name)" name="\(name)" type="\(type)" value="\(value)" \
            autocomplete="off"\("required", if: isRequired)\(list)\(attributes)>\(offered)
            """
        )
    }

    func area(_ value: String, rows: Int = 3) -> HTML {
        // A line end directly after the tag is dropped by browsers.
        wrapped(
            """
            <textarea id="\(name)" name="\(name)" rows="\(rows)"\(attributes)>
            \(value)</textarea>
            """
        )
    }

    func select(_ value: String, _ options: [(value: String, title: String)]) -> HTML {
        let drawn = options.map { option -> HTML in
            """
            <option value="\(option.value)"\("selected", if: option.value == value)>\
            \(option.title)</option>
            """
        }
        return wrapped("<select id=\"\(name)\" name=\"\(name)\"\(attributes)>\(drawn)</select>")
    }

    func checkbox(_ isSet: Bool) -> HTML {
        let shownHint: HTML =
            hint.isEmpty ? .empty : "<p class=\"hint\" id=\"\(name)-hint\">\(hint)</p>"
        return """
            <div class="field choice"><input type="checkbox" id="\(name)" name="\(name)" \
            value="on"\("checked", if: isSet)\(attributes)><label for="\(name)">\(label)</label>\
            \(shownHint)</div>
            """
    }
}
