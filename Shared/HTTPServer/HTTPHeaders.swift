/// The header fields of one message, in their order, looked up without case.
package struct HTTPHeaders: Sendable, Hashable, ExpressibleByDictionaryLiteral, Sequence {
    package struct Field: Sendable, Hashable {
        package var name: String
        package var value: String

        package init(name: String, value: String) {
            self.name = name
            self.value = value
        }
    }

    package private(set) var fields: [Field] = []

    package init() {}

    package init(_ fields: [Field]) { self.fields = fields }

    package init(dictionaryLiteral elements: (String, String)...) {
        // Reserves room for the fields that the server adds to a response.
        fields.reserveCapacity(elements.count + 2)
        for (name, value) in elements { fields.append(Field(name: name, value: value)) }
    }

    package var count: Int { fields.count }

    /// The first value of that name. Setting a value leaves one field of that name; setting `nil` removes all.
    package subscript(name: String) -> String? {
        get { fields.first { equalWithoutCase($0.name, name) }?.value }
        set {
            guard let newValue else { return remove(name) }
            guard let index = fields.firstIndex(where: { equalWithoutCase($0.name, name) }) else {
                return fields.append(Field(name: name, value: newValue))
            }
            fields[index].value = newValue
            var later = fields.suffix(from: index + 1)
            later.removeAll { equalWithoutCase($0.name, name) }
            fields.replaceSubrange((index + 1)..., with: later)
        }
    }

    /// Returns every value of that name, in order.
    package func all(_ name: String) -> [String] {
        fields.compactMap { equalWithoutCase($0.name, name) ? $0.value : nil }
    }

    /// Returns the first value of that name, and how many there are.
    func first(_ name: String) -> (value: String?, count: Int) {
        var found: (value: String?, count: Int) = (nil, 0)
        for field in fields where equalWithoutCase(field.name, name) {
            if found.count == 0 { found.value = field.value }
            found.count += 1
        }
        return found
    }

    package func contains(_ name: String) -> Bool {
        fields.contains { equalWithoutCase($0.name, name) }
    }

    package mutating func add(_ name: String, _ value: String) {
        fields.append(Field(name: name, value: value))
    }

    mutating func reserveCapacity(_ count: Int) { fields.reserveCapacity(count) }

    package mutating func remove(_ name: String) {
        fields.removeAll { equalWithoutCase($0.name, name) }
    }

    /// Whether a comma-separated field such as `Connection` names this token.
    package func hasToken(_ token: String, in name: String) -> Bool {
        fields.contains { field in
            guard equalWithoutCase(field.name, name) else { return false }
            return field.value.utf8.split(separator: UInt8(ascii: ",")).contains { part in
                let trimmed = part.drop(while: isBlank)
                let last = trimmed.lastIndex(where: { !isBlank($0) })
                return last.map { equalWithoutCase(trimmed[...$0], token.utf8) } ?? false
            }
        }
    }

    package func makeIterator() -> IndexingIterator<[Field]> { fields.makeIterator() }
}

func equalWithoutCase(_ a: String, _ b: String) -> Bool {
    a.utf8.count == b.utf8.count && equalWithoutCase(a.utf8, b.utf8)
}

func equalWithoutCase(
    _ a: some Sequence<UInt8>,
    _ b: some Sequence<UInt8>
) -> Bool {
    a.elementsEqual(b) { lowercased($0) == lowercased($1) }
}

func lowercased(_ byte: UInt8) -> UInt8 {
    byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte
}

func isBlank(_ byte: UInt8) -> Bool {
    byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t")
}
