import PushCore

/// Decides whether this process may work on the rows and shards that it owns.
///
/// A dispatcher's session is a row with a lease. Its id is the epoch that every write of a delivery
/// carries. This process counts the lease from before it requested the renewal, so that the lease
/// always ends here before it ends in the table.
struct SessionLease: Equatable {
    enum Event: Equatable {
        /// A row was inserted; `asked` is the time of the request.
        case opened(id: Int, asked: MonotonicInstant)
        /// The reply to a renewal. `isHeld` says whether the row still existed.
        case renewed(id: Int, isHeld: Bool, asked: MonotonicInstant)
        /// Time has passed.
        case tick(now: MonotonicInstant)
        case closed
    }

    enum Action: Equatable {
        case nothing
        /// Start working under this id.
        case begin(id: Int)
        /// Drop all that this id owned, as another session owns it or soon will. Then open a new
        /// session.
        case abandon(id: Int)
    }

    let leaseMilliseconds: Int64
    private(set) var id: Int?
    private var endsAt = MonotonicInstant.earliest

    init(leaseMilliseconds: Int64) {
        self.leaseMilliseconds = leaseMilliseconds
    }

    mutating func event(_ event: Event) -> Action {
        switch event {
        case .opened(let id, let asked):
            self.id = id
            endsAt = asked.adding(milliseconds: leaseMilliseconds)
            return .begin(id: id)
        case .renewed(let id, let isHeld, let asked):
            guard id == self.id else { return .nothing }
            guard isHeld else { return abandon() }
            endsAt = max(endsAt, asked.adding(milliseconds: leaseMilliseconds))
            return .nothing
        case .tick(let now):
            return id != nil && now >= endsAt ? abandon() : .nothing
        case .closed:
            id = nil
            return .nothing
        }
    }

    private mutating func abandon() -> Action {
        guard let id else { return .nothing }
        self.id = nil
        return .abandon(id: id)
    }
}
