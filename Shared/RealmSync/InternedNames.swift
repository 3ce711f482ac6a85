/// The interned strings of a changeset, and the classes that it declares. Of most strings only the
/// place is kept, so that a hostile changeset takes little more memory than its bytes.
struct InternedNames: Sendable {
    private struct Place {
        let start: Int32
        let count: Int32
    }

    private var places: [Place] = []
    /// The first ones, which many objects use.
    private var texts: [String] = []
    private(set) var tables: [(name: Int32, kind: RealmTable.Kind)] = []

    private static let keptTexts = 256
    private static let maximumTables = 1 << 16

    var count: Int { places.count }

    /// - Returns: False if there are too many bytes before it.
    mutating func append(_ text: String, at start: Int) -> Bool {
        guard let start = Int32(exactly: start), let count = Int32(exactly: text.utf8.count)
        else { return false }
        if texts.count < Self.keptTexts { texts.append(text) }
        places.append(Place(start: start, count: count))
        return true
    }

    func byteCount(_ index: Int32) -> Int { Int(places[Int(index)].count) }

    /// Returns a string, which its bytes were checked to be.
    func text(_ index: Int32, _ cursor: ByteCursor) -> String {
        if index < texts.count { return texts[Int(index)] }
        var cursor = cursor
        cursor.position = Int(places[Int(index)].start)
        return ((try? cursor.text(byteCount(index))) ?? nil) ?? ""
    }

    /// - Returns: False if there are too many.
    mutating func declare(_ table: Int32, _ kind: RealmTable.Kind) -> Bool {
        guard tables.count < Self.maximumTables else { return false }
        tables.append((table, kind))
        return true
    }
}
