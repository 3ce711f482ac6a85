/// Secrets that wait for their turn to be hashed, fair between those who sent them. Pure: no thread, no
/// clock.
///
/// Owners take turns, and an owner's own come in their order. Where there is no room, the newest of
/// whoever has the most gives way to one who has less.
struct SecretQueue<Job> {
    enum Admission: Equatable {
        case waits
        case refused
        /// It waits in the place of this one.
        case waitsInsteadOf(Int)
    }

    private struct Waiting {
        let id: Int
        let job: Job
    }

    /// Those with something waiting, next first.
    private var turns: [[UInt8]] = []
    private var waiting: [[UInt8]: [Waiting]] = [:]
    private(set) var count = 0
    let maximumWaiting: Int

    init(maximumWaiting: Int) { self.maximumWaiting = maximumWaiting }

    /// - Parameters:
    ///   - job: What is to be done.
    ///   - id: No other that waits has it.
    ///   - owner: Who sent it.
    /// - Returns: Whether it waits now.
    mutating func add(_ job: Job, _ id: Int, of owner: [UInt8]) -> Admission {
        var admission = Admission.waits
        if count >= maximumWaiting {
            guard let displaced = displace(for: owner) else { return .refused }
            admission = .waitsInsteadOf(displaced)
        }
        if waiting[owner] == nil { turns.append(owner) }
        waiting[owner, default: []].append(Waiting(id: id, job: job))
        count += 1
        return admission
    }

    /// Takes the newest of whoever has the most, where that is more than `owner` would have.
    private mutating func displace(for owner: [UInt8]) -> Int? {
        let own = waiting[owner]?.count ?? 0
        guard let greatest = waiting.max(by: { $0.value.count < $1.value.count }),
            greatest.value.count > own + 1, let last = greatest.value.last
        else { return nil }
        remove(last.id, of: greatest.key)
        return last.id
    }

    /// Takes the next one out.
    mutating func next() -> (id: Int, job: Job)? {
        guard let owner = turns.first, let first = waiting[owner]?.first else { return nil }
        remove(first.id, of: owner)
        // Its next one has its turn behind the others.
        if waiting[owner] != nil {
            turns.removeAll { $0 == owner }
            turns.append(owner)
        }
        return (first.id, first.job)
    }

    /// Takes one out for which nobody waits any more.
    mutating func remove(_ id: Int, of owner: [UInt8]) {
        guard let index = waiting[owner]?.firstIndex(where: { $0.id == id }) else { return }
        waiting[owner]?.remove(at: index)
        count -= 1
        guard waiting[owner]?.isEmpty == true else { return }
        waiting[owner] = nil
        turns.removeAll { $0 == owner }
    }

    /// Takes all out.
    mutating func removeAll() -> [Int] {
        let ids = waiting.values.flatMap { $0.map(\.id) }
        (turns, waiting, count) = ([], [:], 0)
        return ids
    }
}
