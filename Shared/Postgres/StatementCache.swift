/// The statements that one connection has prepared; the least recently used are evicted first.
/// Pure.
struct StatementCache {
    private struct Entry {
        let name: String
        /// The types of its parameters; 0: the server infers the type.
        let types: [UInt32]
        var isPrepared = false
        var columns: ColumnSet?
        var lastUse: Int
    }

    enum Lookup: Equatable {
        case known(name: String)
        /// The statement is to be prepared under this name, and the evicted ones to be deallocated.
        case new(name: String, evicted: [String])
    }

    private let limit: Int
    private var entries: [String: Entry] = [:]
    private var names = 0
    private var clock = 0

    init(limit: Int) { self.limit = limit }

    var count: Int { entries.count }

    /// - Parameters:
    ///   - sql: The statement.
    ///   - types: The types of its parameters this time. If a parameter is an array that was null
    ///     before, the statement is prepared again.
    /// - Returns: The name to run it by, and whether it must be prepared.
    mutating func use(_ sql: String, _ types: [UInt32] = []) -> Lookup {
        clock += 1
        var evicted: [String] = []
        if let index = entries.index(forKey: sql) {
            if zip(entries.values[index].types, types).allSatisfy({ $1 == 0 || $0 == $1 }) {
                entries.values[index].lastUse = clock
                return .known(name: entries.values[index].name)
            }
            if let name = forget(sql) { evicted.append(name) }
        }
        while entries.count >= limit,
            // A statement whose preparation is in flight cannot be deallocated: it may yet fail.
            let oldest = entries.filter({ $0.value.isPrepared })
                .min(by: { $0.value.lastUse < $1.value.lastUse })
        {
            evicted.append(oldest.value.name)
            entries[oldest.key] = nil
        }
        names += 1
        let name = "s\(names)"
        entries[sql] = Entry(name: name, types: types, lastUse: clock)
        return .new(name: name, evicted: evicted)
    }

    mutating func prepared(_ sql: String) { entries[sql]?.isPrepared = true }

    /// Removes a statement that was not prepared after all, or must be prepared again.
    ///
    /// - Returns: The name to deallocate, if the server knows it.
    mutating func forget(_ sql: String) -> String? {
        guard let entry = entries.removeValue(forKey: sql) else { return nil }
        return entry.isPrepared ? entry.name : nil
    }

    func columns(of sql: String) -> ColumnSet? { entries[sql]?.columns }
    mutating func remember(_ columns: ColumnSet, of sql: String) { entries[sql]?.columns = columns }
}
