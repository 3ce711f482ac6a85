/// A queue that is fair between owners: they take turns, and the elements of each owner are first
/// in, first out. Pure.
package struct FairLine<Element> {
    /// Slices, as removing the first element of one moves no other.
    private var lines: [String: ArraySlice<Element>] = [:]
    /// The owners with waiting elements, the next first.
    private var owners: [String] = []

    package init() {}

    package var isEmpty: Bool { owners.isEmpty }

    package func count(of owner: String) -> Int { lines[owner]?.count ?? 0 }

    package mutating func append(_ element: Element, of owner: String) {
        if lines[owner] == nil { owners.append(owner) }
        lines[owner, default: []].append(element)
    }

    /// - Returns: The first element of the next owner; `nil` if it is empty.
    package mutating func popFirst() -> Element? { owners.first.flatMap { popFirst(of: $0) } }

    /// - Returns: The first element of the next owner whose first one is allowed; `nil`: all must wait.
    package func first(
        where isAllowed: (_ owner: String, Element) -> Bool
    ) -> (owner: String, element: Element)? {
        for owner in owners {
            if let element = lines[owner]?.first, isAllowed(owner, element) {
                return (owner, element)
            }
        }
        return nil
    }

    /// Removes the first element of an owner, whose next turn comes after the others'.
    @discardableResult
    package mutating func popFirst(of owner: String) -> Element? {
        guard let element = lines[owner]?.popFirst() else { return nil }
        owners.removeAll { $0 == owner }
        if lines[owner]?.isEmpty == true {
            lines[owner] = nil
        } else {
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
