/// In the place of the server's: the parser makes requests, and knows nobody who waits for answers.
package final class ClientPresence: Sendable {
    package static let always = ClientPresence()
}

/// The same, of a body's share of a budget.
final class BudgetedBody: Sendable {
    func drop() {}
}
