package import PushCore

extension PushRequest {
    /// What is shorter fits everywhere, however it is escaped.
    package static let smallestInDoubt = 512
    /// Of the push's languages, so many are tried: each costs a rendering of all of it.
    private static let maximumVariants = 4

    /// That the content is too large for every platform of the request; `nil` where devices of one of
    /// them may get it in one of its languages. Where a platform gets nothing of it anyway, its limit
    /// does not count. What each device holds itself, or adds to it, is not known here.
    ///
    /// Judged by the code that renders it for the devices, so that nothing is refused that would go.
    ///
    /// - Parameter bytes: How long the request is as JSON.
    /// - Returns: The size and the limit that it comes closest to.
    package func tooLargeEverywhere(bytes: Int) -> RenderingError? {
        guard bytes >= Self.smallestInDoubt, deviceTemplate == nil else { return nil }
        let variants = LocaleVariants(data).locales
        guard variants.count <= Self.maximumVariants else { return nil }
        var nearest: (excess: Int, error: RenderingError)?
        for platform in platforms {
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

    private var platforms: [Platform] {
        guard case .tokens(let tokens) = audience else { return Platform.allCases }
        let named = Set(tokens.map(\.platform))
        return Platform.allCases.filter(named.contains)
    }
}
