import PushStorage
import Storage

/// A cache of the contexts of the latest pushes, within a budget of memory. It weighs contexts and
/// does not count them, since one may be a thousand times as large as another.
///
/// It has two generations. A context that is looked up moves to the young one. When the young one
/// takes half of the budget it becomes the old one, and the previous old one is evicted. A context
/// that is in use is always found, so that all its deliveries share one pace.
@DispatchLoop
final class PushContextCache: PushContextOwner {
    /// The approximate bytes that all cached contexts may take, templates included.
    static let budgetBytes = 64 << 20
    private static let halfBytes = budgetBytes / 2

    @DispatchLoop
    private struct Generation {
        private(set) var contexts: [String: PushContext] = [:]
        private(set) var weightBytes = 0

        mutating func add(_ context: PushContext) {
            contexts[context.pushID] = context
            weightBytes += context.weightBytes
        }

        mutating func remove(_ id: String) -> PushContext? {
            guard let context = contexts.removeValue(forKey: id) else { return nil }
            weightBytes -= context.weightBytes
            return context
        }

        /// - Returns: Whether this generation has the context.
        mutating func grew(_ context: PushContext, by bytes: Int) -> Bool {
            guard contexts[context.pushID] === context else { return false }
            weightBytes += bytes
            return true
        }
    }

    private struct InUse {
        weak var context: PushContext?
    }

    private let database: PushDatabase
    private var young = Generation()
    private var old = Generation()
    private var inUse: [String: InUse] = [:]
    private var inUseLimit = 1024

    init(database: PushDatabase) { self.database = database }

    /// The approximate bytes of memory of the cached contexts.
    var weightBytes: Int { young.weightBytes + old.weightBytes }

    func remember(_ context: PushContext) {
        _ = young.remove(context.pushID)
        _ = old.remove(context.pushID)
        inUse[context.pushID] = InUse(context: context)
        if inUse.count > inUseLimit {
            inUse = inUse.filter { $0.value.context != nil }
            inUseLimit = max(1024, inUse.count * 2)
        }
        context.weigh()
        context.keeper = self
        young.add(context)
        trim()
    }

    /// Adds the weight of a template that a context has rendered.
    func grew(_ context: PushContext, by bytes: Int) {
        guard young.grew(context, by: bytes) || old.grew(context, by: bytes) else { return }
        trim()
    }

    private func trim() {
        if young.weightBytes > Self.halfBytes {
            old = young
            young = Generation()
        }
        // A single context may exceed half of the budget.
        if old.weightBytes > Self.halfBytes, weightBytes > Self.budgetBytes { old = Generation() }
    }

    private func known(_ id: String) -> PushContext? {
        if let context = young.contexts[id] { return context }
        if let context = old.remove(id) {
            young.add(context)
            trim()
            return context
        }
        return inUse[id]?.context
    }

    /// Returns the contexts of these pushes. The context of a push without a record renders
    /// nothing.
    func load(_ ids: Set<String>) async throws -> [String: PushContext] {
        var found: [String: PushContext] = [:]
        var missing: Set<String> = []
        for id in ids {
            if let context = known(id) { found[id] = context } else { missing.insert(id) }
        }
        guard !missing.isEmpty else { return found }
        let records = try await database.pushes.find(missing)
        for id in missing {
            // Another task may have loaded the context meanwhile. There must be only one, as it has
            // the pace.
            if let context = known(id) {
                found[id] = context
                continue
            }
            let context =
                records[id].map { PushContext($0) }
                ?? PushContext(pushID: id, eventID: "", source: "", request: nil)
            found[id] = context
            remember(context)
        }
        return found
    }
}
