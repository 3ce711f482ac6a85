/// In the place of the server's: the parser makes requests, and knows nobody who waits for answers.
package final class CallerPresence: Sendable {
    package static let always = CallerPresence()
}

/// The same, of a body's share of a budget.
final class HeldBody: Sendable {
    func drop() {}
}
