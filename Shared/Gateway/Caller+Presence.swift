import HTTPServer

extension Caller {
    /// Checks that the client is still there, before work that serves only this caller begins.
    ///
    /// - Throws: `CancellationError` once the client has gone.
    package func checkPresence() throws { try context?.presence.check() }

    /// Runs a query that is cancelled when the client leaves. It must use an exclusive connection,
    /// not the shared ones, and must not write.
    package func withCancellableQuery<Value: Sendable>(
        _ question: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        guard let context else { return try await question() }
        return try await context.presence.whileThere(question)
    }

    /// Waits for a turn among the large responses of the connection, before another is built.
    ///
    /// - Throws: `CancellationError` once the client has gone.
    package func waitForRoom() async throws { try await context?.presence.waitForRoom() }

    /// Counts a part of a gathered response, by the size of its text.
    ///
    /// - Returns: False if there is no room for more.
    package func holdAnswer(bytes: Int) -> Bool {
        // A tree takes several times the size of its text.
        context?.presence.hold(4 * bytes) ?? true
    }
}
