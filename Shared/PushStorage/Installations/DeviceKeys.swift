import JSON
import PushCore

/// What installations are found by. Saves that share one of them wait for each other.
struct DeviceKeys: Sendable, Equatable {
    struct Route: Hashable, Sendable {
        var platform: Platform
        var token: String
    }

    var installationIDs: TextSet = []
    var routes: Set<Route> = []
    /// Parse's `deviceToken`, which need not lead anywhere.
    var unroutedTokens: TextSet = []

    mutating func formUnion(_ other: DeviceKeys) {
        installationIDs.formUnion(other.installationIDs)
        routes.formUnion(other.routes)
        unroutedTokens.formUnion(other.unroutedTokens)
    }

    var isEmpty: Bool { installationIDs.isEmpty && routes.isEmpty && unroutedTokens.isEmpty }

    func isSuperset(of other: DeviceKeys) -> Bool {
        installationIDs.isSuperset(of: other.installationIDs)
            && routes.isSuperset(of: other.routes)
            && unroutedTokens.isSuperset(of: other.unroutedTokens)
    }
}
