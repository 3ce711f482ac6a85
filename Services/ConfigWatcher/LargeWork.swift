import EventLoop

/// Work on a template that may take long: on libuv's pool, so that its loop answers others meanwhile;
/// a small one at once, where it costs less than the way there and back.
enum LargeWork {
    /// Below it, a few milliseconds at most.
    private static let smallBytes = 32 << 10

    /// - Parameters:
    ///   - bytes: Of the template.
    ///   - loop: The caller's.
    ///   - body: Ends by itself.
    /// - Returns: What the body gives.
    /// - Throws: What the body throws.
    static func run<Value: Sendable>(
        ofBytes bytes: Int,
        on loop: EventLoop,
        _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        if bytes < smallBytes { return try body() }
        return try await loop.blocking(body)
    }
}
