/// The outcome of a delivery. The raw values are those of `push.outcomes`.
package enum Outcome: String, Sendable, CaseIterable, Hashable {
    case delivered, failed, expired, suppressed
    /// The request was sent and had no answer. The result is unknown, and it is not repeated.
    case inDoubt = "in_doubt"
}

/// The state of a delivery in its row: pending, or its outcome.
package enum DeliveryState: Int, Sendable, CaseIterable {
    case pending = 0
    case delivered, failed, expired, suppressed, inDoubt

    package init(_ outcome: Outcome) {
        switch outcome {
        case .delivered: self = .delivered
        case .failed: self = .failed
        case .expired: self = .expired
        case .suppressed: self = .suppressed
        case .inDoubt: self = .inDoubt
        }
    }

    package var outcome: Outcome? {
        switch self {
        case .pending: nil
        case .delivered: .delivered
        case .failed: .failed
        case .expired: .expired
        case .suppressed: .suppressed
        case .inDoubt: .inDoubt
        }
    }
}

/// A counter for each outcome.
package protocol OutcomeCounters {
    var delivered: Int { get set }
    var failed: Int { get set }
    var expired: Int { get set }
    var suppressed: Int { get set }
    var inDoubt: Int { get set }
}

extension OutcomeCounters {
    package subscript(outcome: Outcome) -> Int {
        get {
            switch outcome {
            case .delivered: delivered
            case .failed: failed
            case .expired: expired
            case .suppressed: suppressed
            case .inDoubt: inDoubt
            }
        }
        set {
            switch outcome {
            case .delivered: delivered = newValue
            case .failed: failed = newValue
            case .expired: expired = newValue
            case .suppressed: suppressed = newValue
            case .inDoubt: inDoubt = newValue
            }
        }
    }

    /// The number of deliveries that have ended.
    package var total: Int { delivered + failed + expired + suppressed + inDoubt }
}

/// The ledger of one push. Each counter is counted at its event; no counter is computed from
/// others.
package struct Ledger: OutcomeCounters, Equatable, Sendable {
    package var targeted = 0
    package var delivered = 0
    package var failed = 0
    package var expired = 0
    package var suppressed = 0
    package var inDoubt = 0
    package var pending = 0
    /// The number of tokens that became invalid by this push; part of `failed`.
    package var invalidTokens = 0

    package init() {}

    /// Whether the counters balance, as they must at every moment.
    package var balances: Bool {
        targeted == total + pending
    }

    /// Whether every delivery has its outcome. True for an empty ledger.
    package var isSettled: Bool { pending == 0 }

    /// Counts deliveries that were just planned.
    package mutating func plan(_ count: Int) {
        targeted += count
        pending += count
    }

    /// Moves one delivery from pending to its outcome.
    package mutating func settle(_ outcome: Outcome) {
        pending -= 1
        self[outcome] += 1
    }
}

/// The state of a push. The raw values are those of the `pushes` table.
package enum PushStatus: String, Sendable, CaseIterable {
    /// Accepted over HTTP, not yet seen by a dispatcher.
    case queued
    /// Waits for its `push_time`.
    case scheduled
    /// Its audience is being planned, page by page.
    case planning
    /// Its audience is planned; some deliveries are pending.
    case sending
    case done, cancelled, failed

    package var isFinal: Bool {
        switch self {
        case .queued, .scheduled, .planning, .sending: false
        case .done, .cancelled, .failed: true
        }
    }
}
