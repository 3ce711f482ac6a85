/// In the place of the server's: the parser makes requests, and knows nobody who waits for answers.
package final class CallerPresence: Sendable {
    package static let always = CallerPresence()
}
