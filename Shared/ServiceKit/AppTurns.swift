/// A queue in which apps take turns: first in, first out for each app. Pure.
package struct AppTurns<Element> {
    /// The elements that one app has taken out before the next app's.
    private static var share: Int { 16 }

    private struct Queue {
        var elements: [Element] = []
        /// The number of elements at the front that were taken.
        var taken = 0

        var count: Int { elements.count - taken }

        mutating func take(atMost limit: Int) -> ArraySlice<Element> {
            let end = min(elements.count, taken + limit)
            let portion = elements[taken..<end]
            taken = end
            if taken > elements.count / 2 {
                elements.removeFirst(taken)
                taken = 0
            }
            return portion
        }
    }

    private var queues: [String: Queue] = [:]
    /// The apps with elements, the next first.
    private var order: [String] = []
    /// The number of elements.
    package private(set) var count = 0

    package init() {}

    package var isEmpty: Bool { order.isEmpty }

    package mutating func append(_ element: Element, of app: String) {
        if queues[app] == nil { order.append(app) }
        queues[app, default: Queue()].elements.append(element)
        count += 1
    }

    /// Removes elements: some of each app in turn, until there are enough.
    package mutating func take(atMost limit: Int) -> [Element] {
        var portion: [Element] = []
        while portion.count < limit, !order.isEmpty {
            let app = order.removeFirst()
            let most = min(Self.share, limit - portion.count)
            portion += queues[app]?.take(atMost: most) ?? []
            if queues[app]?.count == 0 { queues[app] = nil } else { order.append(app) }
        }
        count -= portion.count
        return portion
    }
}
