internal import JSON
package import PushCore

extension PushRequest {
    /// The size below which a push fits on every platform, however it is escaped.
    private static let smallestInDoubt = 512
    /// The most bytes that APNs' form adds to the copied members, including a push's id.
    private static let mostOfForm = 512
    /// The most bytes by which a number may grow: `1e15` is written with more digits.
    private static let mostOfNumber = 24
    /// The most languages that are tried, as each costs a full rendering.
    private static let maximumVariants = 4

    /// Whether only a rendering can show that the push fits for some device.
    ///
    /// APNs gets some of the request's members, written as JSON again. A string is never longer
    /// there than in the request, but a number may be.
    ///
    /// - Parameter bytes: The length of the request as JSON.
    /// - Returns: `false` if the push certainly fits for some device.
    package func isOfDoubtfulSize(bytes: Int) -> Bool {
        guard bytes >= Self.smallestInDoubt, deviceTemplate == nil else { return false }
        guard data != nil || native.apns != nil, isFor(.apns) else { return true }
        let numbers = [data, native.apns].reduce(0) {
            $0 + ($1.map { JSONValue.object($0).numbers } ?? 0)
        }
        let most = bytes + Self.mostOfForm + numbers * Self.mostOfNumber
        return most > APNsRequest.maximumPayloadBytes
    }

    /// Returns an error if the content is too large for every platform of the request; `nil` if it
    /// may fit on one platform in one language. A platform that gets no content is ignored. Values
    /// that a device stores or adds are unknown here, and are ignored too.
    ///
    /// Uses the renderer that is used for devices, so that no push is refused that could be sent.
    ///
    /// - Parameter bytes: The length of the request as JSON.
    /// - Returns: The error with the smallest excess over a limit.
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

    /// A sample id; all ids have its length.
    private static let someID = "00000000-0000-8000-8000-000000000000"

    private func isFor(_ platform: Platform) -> Bool {
        guard case .tokens(let tokens) = audience else { return true }
        return tokens.contains { $0.platform == platform }
    }
}

extension JSONValue {
    /// The number of numbers within it.
    fileprivate var numbers: Int {
        switch self {
        case .null, .bool, .string: return 0
        case .integer, .double, .number: return 1
        case .array(let elements): return elements.reduce(0) { $0 + $1.numbers }
        case .object(let object): return object.reduce(0) { $0 + $1.value.numbers }
        }
    }
}
