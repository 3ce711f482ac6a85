import IngestStorage
import PushCore

/// A short-lived cache of the types of objects.
struct SinkTypeCache {
    /// The name of an app and of a type, as bytes: they are untrusted.
    struct Name: Hashable {
        let bytes: [UInt8]

        init(app: String, type: String) {
            bytes = Array(app.utf8) + [0] + Array(type.utf8)
        }
    }

    typealias Known = [Name: StoredIngestType]

    private static let maximumCount = 20_000
    private static let maximumAge: Duration = .seconds(30)

    private let store: IngestTypeStore
    private var known: Known = [:]
    private var since = ContinuousClock.now

    init(_ store: IngestTypeStore) { self.store = store }

    mutating func forget() { known = [:] }

    /// - Returns: The known types among these names, and maybe others.
    mutating func find(_ names: [(app: String, type: String)]) async throws -> Known {
        if since.duration(to: .now) > Self.maximumAge || known.count > Self.maximumCount {
            known = [:]
            since = .now
        }
        var missing: [Name: (app: String, name: String)] = [:]
        for (app, type) in names {
            let name = Name(app: app, type: type)
            if known[name] == nil { missing[name] = (app, type) }
        }
        guard !missing.isEmpty else { return known }
        for (app, type) in try await store.find(Array(missing.values)) {
            known[Name(app: app, type: type.name)] = type
        }
        return known
    }
}
