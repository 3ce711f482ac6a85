/// Replaces the server's type: the parser makes requests, and has no clients that wait for
/// responses.
package final class ClientPresence: Sendable {
    package static let always = ClientPresence()
}

/// Replaces the server's type for a body's share of a budget.
final class BudgetedBody: Sendable {
    func drop() {}
}

/// Replaces the server's type: the parser never streams a body.
package final class HTTPBodyReader: Sendable {}
