/// A selection of devices by their tags: `follows_mets && (premium || !muted)`, as Azure
/// Notification Hubs writes it. Pure.
///
/// `!` binds before `&&`, and `&&` before `||`. A device's tags are its channels. Each device also
/// has the tags `$InstallationId:{…}` and `$UserId:{…}`, whose braces are optional.
package indirect enum TagExpression: Sendable, Equatable {
    case tag(String)
    /// LeanCloud's and Azure's `installationId`, or our object id.
    case installation(String)
    /// The identity that the device belongs to.
    case user(String)
    case not(TagExpression)
    case all([TagExpression])
    case any([TagExpression])

    /// The limit for an expression that joins its tags only by `||`.
    package static let maximumAlternatives = 20
    /// The limit for any other expression.
    package static let maximumTags = 6
    package static let maximumBytes = 8192
    private static let maximumDepth = 16

    /// Reads an expression.
    ///
    /// - Throws: `TagExpressionError`, which names the position.
    package static func parse(_ text: String) throws(TagExpressionError) -> TagExpression {
        guard text.utf8.count <= maximumBytes else {
            throw TagExpressionError(1, "is longer than \(maximumBytes) bytes")
        }
        var reader = TagReader(text)
        let expression = try reader.any(depth: maximumDepth)
        reader.skipSpaces()
        guard reader.isAtEnd else { throw reader.unexpected() }
        let limit = reader.joinsByOrOnly ? maximumAlternatives : maximumTags
        guard reader.tags <= limit else {
            throw TagExpressionError(
                1,
                "holds \(reader.tags) tags: at most \(maximumAlternatives) joined by || alone, else "
                    + "at most \(maximumTags)"
            )
        }
        return expression
    }

    /// Returns the condition on installations.
    ///
    /// - Parameter extra: The path to further tags of a device, a list of strings: the tags of the
    ///   template that the send fills.
    /// - Returns: The condition that a device must fulfil.
    package func condition(also extra: WherePath? = nil) -> Where {
        switch self {
        case .tag(let tag):
            let own = Where.field(.channels, .equal(.string(tag)))
            guard let extra else { return own }
            return .any([own, .field(extra, .equal(.string(tag)))])
        case .installation(let id):
            return .any([
                .field(WherePath(segments: ["installationId"]), .equal(.string(id))),
                .field(WherePath(segments: ["objectId"]), .equal(.string(id))),
            ])
        case .user(let id): return .field(.identity, .equal(.string(id)))
        case .not(let inner): return .none([inner.condition(also: extra)])
        case .all(let parts): return .all(parts.map { $0.condition(also: extra) })
        case .any(let parts): return .any(parts.map { $0.condition(also: extra) })
        }
    }
}

extension WherePath {
    package static let channels = WherePath(segments: ["channels"])
    /// The identity that the device belongs to, by any of its fields. No client can name this path,
    /// as a field's name has no `$`.
    package static let identity = WherePath(segments: ["$identity"])
    /// The provider that reaches the device. No client can name this path either.
    package static let provider = WherePath(segments: ["$provider"])
}

/// The error in a tag expression, with its position. Contains no tag.
package struct TagExpressionError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The position in characters; the first is 1.
    package let position: Int
    package let problem: String

    init(_ position: Int, _ problem: String) {
        self.position = position
        self.problem = problem
    }

    package var description: String {
        "the tag expression, at character \(position): \(problem)"
    }
}

/// The rule for Azure's tags, and for the names of templates, which are tags too.
package enum TagName {
    package static let maximumCharacters = 120

    package static func isValid(_ tag: String) -> Bool {
        let count = tag.unicodeScalars.count
        return (1...maximumCharacters).contains(count) && tag.unicodeScalars.allSatisfy(isOfTag)
    }

    /// Whether the character is allowed in Azure's tags or in a channel's name: a device's tags are
    /// its channels.
    static func isOfTag(_ scalar: Unicode.Scalar) -> Bool {
        guard scalar.isASCII else { return ChannelName.isValid(String(scalar)) }
        return ASCII.isAlphanumeric(UInt8(scalar.value))
            || "_@#.:-=".unicodeScalars.contains(scalar)
    }
}

private struct TagReader {
    private let scalars: [Unicode.Scalar]
    private var index = 0
    private(set) var tags = 0
    private(set) var joinsByOrOnly = true

    init(_ text: String) { scalars = Array(text.unicodeScalars) }

    var isAtEnd: Bool { index == scalars.count }

    mutating func skipSpaces() {
        while !isAtEnd, scalars[index] == " " || scalars[index] == "\t" { index += 1 }
    }

    func unexpected() -> TagExpressionError {
        guard !isAtEnd else { return error("expected a tag, found the end") }
        switch scalars[index] {
        case ")": return error("a parenthesis is closed that was not opened")
        case "&", "|": return error("expected a tag, found an operator; they are &&, || and !")
        default: return error("expected &&, || or the end")
        }
    }

    private func error(_ problem: String) -> TagExpressionError {
        TagExpressionError(index + 1, problem)
    }

    mutating func any(depth: Int) throws(TagExpressionError) -> TagExpression {
        var parts = [try all(depth: depth)]
        while takes("||") { parts.append(try all(depth: depth)) }
        return parts.count == 1 ? parts[0] : .any(parts)
    }

    private mutating func all(depth: Int) throws(TagExpressionError) -> TagExpression {
        var parts = [try one(depth: depth)]
        while takes("&&") {
            joinsByOrOnly = false
            parts.append(try one(depth: depth))
        }
        return parts.count == 1 ? parts[0] : .all(parts)
    }

    private mutating func one(depth: Int) throws(TagExpressionError) -> TagExpression {
        skipSpaces()
        guard depth > 0 else { throw error("is nested too deeply") }
        if takes("!") {
            joinsByOrOnly = false
            return .not(try one(depth: depth - 1))
        }
        if takes("(") {
            let start = index
            let inner = try any(depth: depth - 1)
            guard takes(")") else {
                guard isAtEnd else { throw unexpected() }
                throw TagExpressionError(start, "the parenthesis is never closed")
            }
            return inner
        }
        guard !isAtEnd else { throw unexpected() }
        return scalars[index] == "$" ? try automatic() : try tag()
    }

    private mutating func tag() throws(TagExpressionError) -> TagExpression {
        let name = word()
        guard !name.isEmpty else {
            if scalars[index] == ")" || scalars[index] == "&" || scalars[index] == "|" {
                throw unexpected()
            }
            throw error("expected a tag: letters, digits and _ @ # . : -")
        }
        guard name.unicodeScalars.count <= TagName.maximumCharacters else {
            throw error("a tag has at most \(TagName.maximumCharacters) characters")
        }
        tags += 1
        return .tag(name)
    }

    /// Reads `$InstallationId:{…}` or `$UserId:{…}`.
    private mutating func automatic() throws(TagExpressionError) -> TagExpression {
        let start = index
        index += 1
        var name = ""
        while !isAtEnd, scalars[index] != ":", TagName.isOfTag(scalars[index]) {
            name.unicodeScalars.append(scalars[index])
            index += 1
        }
        guard ["installationid", "userid"].contains(name.lowercased()), !isAtEnd,
            scalars[index] == ":"
        else {
            throw TagExpressionError(
                start + 1,
                "of the tags with $ there are $InstallationId:{…} and $UserId:{…}"
            )
        }
        index += 1
        var value = ""
        if !isAtEnd, scalars[index] == "{" {
            index += 1
            while !isAtEnd, scalars[index] != "}" {
                value.unicodeScalars.append(scalars[index])
                index += 1
            }
            guard !isAtEnd else { throw TagExpressionError(start + 1, "the brace is never closed") }
            index += 1
        } else {
            value = word()
        }
        guard !value.isEmpty, value.utf8.count <= 512, !value.utf8.contains(0) else {
            throw TagExpressionError(start + 1, "expected an id of 1 to 512 bytes")
        }
        tags += 1
        return name.lowercased() == "userid" ? .user(value) : .installation(value)
    }

    private mutating func word() -> String {
        var word = ""
        while !isAtEnd, TagName.isOfTag(scalars[index]) {
            word.unicodeScalars.append(scalars[index])
            index += 1
        }
        return word
    }

    private mutating func takes(_ mark: String) -> Bool {
        skipSpaces()
        let mark = Array(mark.unicodeScalars)
        guard index + mark.count <= scalars.count,
            scalars[index..<(index + mark.count)].elementsEqual(mark)
        else { return false }
        index += mark.count
        return true
    }
}
