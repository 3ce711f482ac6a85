internal import JSON
package import PushCore

extension PushRequest {
    /// What is shorter fits everywhere, however it is escaped.
    private static let smallestInDoubt = 512
    /// What APNs' form adds to the members that it takes over, a push's id among it.
    private static let mostOfForm = 512
    /// What a number may grow by, as `1e15` does.
    private static let mostOfNumber = 24
    /// Of the push's languages, so many are tried: each costs a rendering of all of it.
    private static let maximumVariants = 4

    /// Whether it takes a rendering to know that somebody can get it.
    ///
    /// What APNs gets is some of the request's members, as JSON again: no text of them is longer there
    /// than it came, only numbers may be.
    ///
    /// - Parameter bytes: How long the request is as JSON.
    /// - Returns: `false` where some device can.
    package func isOfDoubtfulSize(bytes: Int) -> Bool {
        guard bytes >= Self.smallestInDoubt, deviceTemplate == nil else { return false }
        guard data != nil || native.apns != nil, isFor(.apns) else { return true }
        let numbers = [data, native.apns].reduce(0) {
            $0 + ($1.map { JSONValue.object($0).numbers } ?? 0)
        }
        let most = bytes + Self.mostOfForm + numbers * Self.mostOfNumber
        return most > APNsRequest.maximumPayloadBytes
    }

    /// That the content is too large for every platform of the request; `nil` where devices of one of
    /// them may get it in one of its languages. Where a platform gets nothing of it anyway, its limit
    /// does not count. What each device holds itself, or adds to it, is not known here.
    ///
    /// Judged by the code that renders it for the devices, so that nothing is refused that would go.
    ///
    /// - Parameter bytes: How long the request is as JSON.
    /// - Returns: The size and the limit that it comes closest to.
    package func tooLargeEverywhere(bytes: Int) -> RenderingError? {
        guard isOfDoubtfulSize(bytes: bytes) else { return nil }
        let variants = LocaleVariants(data).locales
        guard variants.count <= Self.maximumVariants else { return nil }
        var nearest: (excess: Int, error: RenderingError)?
        for platform in Platform.allCases where isFor(platform) {
            for variant in [nil] + variants.map(Optional.some) {
                do throws(RenderingError) {
                    _ = try PayloadTemplate.render(
                        self,
                        pushID: Self.someID,
                        for: platform,
                        locale: variant
                    )
                    return nil
                } catch {
                    guard case .tooLarge(let size, let limit) = error,
                        size - limit < nearest?.excess ?? .max
                    else { continue }
                    nearest = (size - limit, error)
                }
            }
        }
        return nearest?.error
    }

    /// As long as any.
    private static let someID = "00000000-0000-8000-8000-000000000000"

    private func isFor(_ platform: Platform) -> Bool {
        guard case .tokens(let tokens) = audience else { return true }
        return tokens.contains { $0.platform == platform }
    }
}

extension JSONValue {
    /// How many numbers there are within it.
    fileprivate var numbers: Int {
        switch self {
        case .null, .bool, .string: return 0
        case .integer, .double, .number: return 1
        case .array(let elements): return elements.reduce(0) { $0 + $1.numbers }
        case .object(let object): return object.reduce(0) { $0 + $1.value.numbers }
        }
    }
}
