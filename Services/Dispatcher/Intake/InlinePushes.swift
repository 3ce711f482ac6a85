import PushEvents

/// The pushes of the fast path that have not ended, by id. A copy of an event waits for the first.
@DispatchLoop
final class InlinePushes {
    private var pushes: [String: (run: InlineRun, index: Int)] = [:]

    /// The number of pushes that are looked up or sent and have not ended.
    private var inFlight = 0
    /// The devices that the large pushes name.
    private var named = NamedInFlight()
    /// The large pushes that were not admitted, until they are planned.
    private var planning: Set<String> = []

    var isEmpty: Bool { pushes.isEmpty }
    var areInFlight: Bool { inFlight > 0 }

    subscript(id: String) -> (run: InlineRun, index: Int)? { pushes[id] }

    func enter(_ id: String, _ run: InlineRun, at index: Int) {
        pushes[id] = (run, index)
        inFlight += 1
    }

    /// Notes that a push is ready: it waits to be recorded.
    func isReady() { inFlight -= 1 }

    func leave(_ id: String, wasReady: Bool) {
        pushes[id] = nil
        if !wasReady { inFlight -= 1 }
    }

    /// Decides whether a large push takes the fast path. A copy is treated like the first: it waits
    /// for the first one's end, or it is planned too, and then found to be known.
    ///
    /// - Parameters:
    ///   - item: The push. If it is admitted, the caller must add it to a run before the next
    ///     `await`.
    ///   - names: The number of devices that it names.
    ///   - limit: The maximum of its app's members on the fast path.
    /// - Returns: `false` if it must be planned, until `planned` is called for it.
    func admitLarge(_ item: EventBatch.Usable, _ names: Int, limit: Int) -> Bool {
        if pushes[item.pushID] != nil { return true }
        if planning.contains(item.pushID) { return false }
        if named.admit(names, of: item.event.app, limit: limit) { return true }
        planning.insert(item.pushID)
        return false
    }

    func releaseLarge(_ names: Int, of app: String) { named.release(names, of: app) }

    /// Whether a large push was not admitted and is planned now: it becomes a shard.
    func isPlanning(_ id: String) -> Bool { planning.contains(id) }

    func planned(_ items: [EventBatch.Usable]) {
        guard !planning.isEmpty else { return }
        for item in items { planning.remove(item.pushID) }
    }

    /// Ends all runs: the session is lost, or the drain has ended.
    func drop() {
        for (run, _) in Array(pushes.values) { run.drop() }
    }
}

/// The members of each app's large pushes on the fast path that have no answer yet. A push beyond its app's limit
/// becomes a shard, which waits in Postgres and not in front of other apps. Pure.
struct NamedInFlight {
    private var names: [String: Int] = [:]

    /// Adds a push if its app has room for it. A push always fits if its app has no other.
    mutating func admit(_ count: Int, of app: String, limit: Int) -> Bool {
        let others = names[app] ?? 0
        guard others == 0 || count <= limit - others else { return false }
        names[app] = others + count
        return true
    }

    mutating func release(_ count: Int, of app: String) {
        let left = (names[app] ?? 0) - count
        names[app] = left > 0 ? left : nil
    }
}
