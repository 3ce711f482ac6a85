/// A queue that is fair between owners: they take turns, and the elements of each owner are first
/// in, first out. Pure.
package struct FairLine<Element> {
    private var lines: [String: [Element]] = [:]
    /// The owners with waiting elements, the next first.
    private var owners: [String] = []

    package init() {}

    package var isEmpty: Bool { owners.isEmpty }

    package func count(of owner: String) -> Int { lines[owner]?.count ?? 0 }

    package mutating func append(_ element: Element, of owner: String) {
        if lines[owner] == nil { owners.append(owner) }
        lines[owner, default: []].append(element)
    }

    /// - Returns: `nil` if it is empty.
    package mutating func popFirst() -> Element? {
        guard let owner = owners.first, var line = lines[owner], !line.isEmpty else { return nil }
        owners.removeFirst()
        let element = line.removeFirst()
        if line.isEmpty {
            lines[owner] = nil
        } else {
            lines[owner] = line
            owners.append(owner)
        }
        return element
    }

    package mutating func remove(of owner: String, where isIt: (Element) -> Bool) {
        guard var line = lines[owner], let index = line.firstIndex(where: isIt) else { return }
        line.remove(at: index)
        if line.isEmpty {
            lines[owner] = nil
            owners.removeAll { $0 == owner }
        } else {
            lines[owner] = line
        }
    }
}
