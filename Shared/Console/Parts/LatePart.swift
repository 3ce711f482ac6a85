import EventLoop

/// A part of a page that other systems may hold up: the page is served without it.
extension ConsoleSurface {
    /// The time that a part may take.
    private static let longest = Duration.milliseconds(500)

    /// Awaits a part.
    ///
    /// - Returns: `nil` if it is late, or if it failed: the page says so in its place.
    func unlessLate<Value: Sendable>(
        _ part: @escaping @Sendable () async throws -> Value
    ) async -> Value? {
        let (results, result) = AsyncStream.makeStream(of: Value?.self)
        let loop = loop
        let task = Task(executorPreference: loop) {
            result.yield(try? await part())
        }
        let limit = Task(executorPreference: loop) {
            try? await loop.sleep(for: Self.longest)
            result.yield(nil)
        }
        defer {
            task.cancel()
            limit.cancel()
        }
        for await value in results { return value }
        return nil
    }

    /// Returns the note in place of a part that is late.
    func lateNote(_ t: Words) -> HTML {
        Part.note(HTML(text: t("Not loaded in time.")), .warn)
    }
}
