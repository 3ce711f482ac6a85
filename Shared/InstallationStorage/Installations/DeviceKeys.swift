import JSON
import PushCore
import Storage

/// The keys by which installations are found. Saves that share one of them wait for each other.
struct DeviceKeys: Sendable, Equatable {
    struct Route: Hashable, Sendable {
        var platform: Platform
        var token: String
    }

    var installationIDs: ExactStringSet = []
    var routes: Set<Route> = []
    /// Parse's `deviceToken`, which need not be a token of any provider.
    var unroutedTokens: ExactStringSet = []

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
