/// A path pattern below a surface's base, such as `classes/_User/:id`. It finds the routes of the
/// calls in a batch; the router finds all others.
struct PathPattern: Sendable {
    let text: String

    /// Returns the values of the named segments; `nil` if the path does not match.
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
