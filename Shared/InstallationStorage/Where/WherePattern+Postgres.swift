import PushCore

extension WherePattern {
    /// The pattern as an "advanced regular expression" of Postgres (its manual, 9.7.3). It is for
    /// the collation "C", so that it matches the same in every locale of the database.
    ///
    /// Every class, and every case, is written out. Each ASCII character other than letters and
    /// digits is written by its number, so that none of them is read as syntax.
    var postgres: String {
        // `***:` means that an ARE follows. With `w`, only `^` and `$` treat lines separately.
        var text = isMultiline ? "***:(?w)" : "***:"
        root.write(into: &text)
        return text
    }

    /// A pattern for the characters with which every match begins; `nil` without such characters.
    var postgresBeginning: String? {
        guard !isMultiline, case .sequence(let nodes) = root,
            nodes.first == .lineStart || nodes.first == .textStart
        else { return nil }
        let characters = nodes.dropFirst().prefix { node in
            if case .literal = node { true } else { false }
        }
        guard !characters.isEmpty else { return nil }
        var text = "***:^"
        for character in characters.prefix(400) { character.write(into: &text) }
        return text
    }
}

extension WherePattern.Node {
    fileprivate func write(into text: inout String) {
        switch self {
        case .literal(let scalar): scalar.write(into: &text)
        case .any(includingLineFeed: true): text += "."
        case .any(includingLineFeed: false): text += "[^\\u000A]"
        case .set(let set): set.write(into: &text)
        case .lineStart: text += "^"
        case .lineEnd: text += "$"
        case .textStart: text += "\\A"
        case .textEnd: text += "\\Z"
        case .wordBoundary: text += "\\y"
        case .noWordBoundary: text += "\\Y"
        case .sequence(let nodes):
            for node in nodes { node.writeGrouped(into: &text, where: node.isChoice) }
        case .choice(let nodes):
            var isFirst = true
            for node in nodes {
                if !isFirst { text += "|" }
                isFirst = false
                node.writeGrouped(into: &text, where: node.isChoice)
            }
        case .repetition(let node, let minimum, let maximum):
            node.writeGrouped(into: &text, where: !node.isOneCharacter)
            switch (minimum, maximum) {
            case (0, nil): text += "*"
            case (1, nil): text += "+"
            case (0, 1): text += "?"
            case (_, nil): text += "{\(minimum),}"
            case (_, let maximum?):
                text += minimum == maximum ? "{\(minimum)}" : "{\(minimum),\(maximum)}"
            }
        case .lookahead(let node, let isNegative):
            text += isNegative ? "(?!" : "(?="
            node.write(into: &text)
            text += ")"
        }
    }

    private func writeGrouped(into text: inout String, where isNeeded: Bool) {
        if isNeeded { text += "(?:" }
        write(into: &text)
        if isNeeded { text += ")" }
    }

    private var isChoice: Bool {
        switch self {
        case .choice: true
        // A sequence of only one choice is a group.
        case .sequence(let nodes): nodes.count == 1 && nodes[0].isChoice
        default: false
        }
    }

    private var isOneCharacter: Bool {
        switch self {
        case .literal, .any, .set: true
        default: false
        }
    }
}

extension WherePattern.ScalarSet {
    fileprivate func write(into text: inout String) {
        guard !ranges.isEmpty else {
            text += "[^\\u0001-\\U0010FFFF]"
            return
        }
        text += "["
        for range in ranges {
            Self.write(range.lowerBound, into: &text)
            guard range.count > 1 else { continue }
            text += "-"
            Self.write(range.upperBound, into: &text)
        }
        text += "]"
    }

    fileprivate static func write(_ code: UInt32, into text: inout String) {
        let digits = String(code, radix: 16, uppercase: true)
        let width = code > 0xFFFF ? 8 : 4
        text += code > 0xFFFF ? "\\U" : "\\u"
        text += String(repeating: "0", count: width - digits.count) + digits
    }
}

extension Unicode.Scalar {
    fileprivate func write(into text: inout String) {
        let isAlphanumeric =
            (48...57).contains(value) || (65...90).contains(value) || (97...122).contains(value)
        if isAlphanumeric || !isASCII {
            text.unicodeScalars.append(self)
        } else {
            WherePattern.ScalarSet.write(value, into: &text)
        }
    }
}
