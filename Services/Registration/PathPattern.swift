/// A path's pattern below a surface's base, `classes/_User/:id`, for calls that come in a batch: the
/// router finds the others.
struct PathPattern: Sendable {
    let text: String

    /// What the named segments stand for; `nil` for another path.
    func match(_ path: [String]) -> [String: String]? {
        let segments = text.split(separator: "/")
        guard segments.count == path.count else { return nil }
        var parameters: [String: String] = [:]
        for (segment, value) in zip(segments, path) {
            if segment.first == ":" {
                guard !value.isEmpty else { return nil }
                parameters[String(segment.dropFirst())] = value
            } else if segment != value {
                return nil
            }
        }
        return parameters
    }
}
