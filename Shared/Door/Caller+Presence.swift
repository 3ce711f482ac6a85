import HTTPServer

extension Caller {
    /// Before something is begun that only this caller asked for.
    ///
    /// - Throws: `CancellationError` once he has gone.
    package func checkPresence() throws { try visit?.presence.check() }

    /// Asks a question on a connection of its own, which ends at Postgres when the caller goes. It must
    /// not write, nor go by the connections that others share.
    package func asking<Value: Sendable>(
        _ question: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        guard let visit else { return try await question() }
        return try await visit.presence.whileThere(question)
    }

    /// Before an answer is made that may be large: waits for its turn among those of its connection.
    ///
    /// - Throws: `CancellationError` once the caller has gone.
    package func waitForRoom() async throws { try await visit?.presence.waitForRoom() }

    /// Counts a part of an answer that is gathered, by the size of its text.
    ///
    /// - Returns: False where there is no room for more of it.
    package func holdAnswer(bytes: Int) -> Bool {
        // As a tree it takes several times its text.
        visit?.presence.hold(4 * bytes) ?? true
    }
}
