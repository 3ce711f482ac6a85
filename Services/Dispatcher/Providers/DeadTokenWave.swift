import PushCore

/// Tells single dead tokens from a sudden wave of them, which is our own mistake more often than
/// that of so many devices (promise 9): a wave stops the clean-up and raises an alarm.
///
/// One for each (app, provider). Counts answers in a window; past `minimum` dead ones that are
/// more than half of all answers, nothing is disabled until a whole window has passed without
/// such a share.
///
/// A token of another sender's is dead by its own fault only where it is one of few: `mismatched`
/// stops at `minimumMismatched` of them, until the provider has accepted a push again.
struct DeadTokenWave: Equatable {
    enum Action: Equatable {
        /// The token may be disabled.
        case disable
        /// It may not: its delivery has failed, the token stays.
        case keep
        /// As `keep`, and somebody has to be told: the wave has just begun.
        case keepAndAlarm(dead: Int, answers: Int)
    }

    /// How many dead tokens in a window are never called a wave.
    static let minimum = 100
    static let windowMilliseconds: Int64 = 60_000
    /// How many tokens of another sender's, one after the other or in a window, are each at fault.
    static let minimumMismatched = 3

    private var windowEnds = SteadyInstant.earliest
    private var answers = 0
    private var dead = 0
    private(set) var isStopped = false
    /// Since the provider accepted a push, and in this window.
    private var mismatchedInARow = 0
    private var mismatched = 0
    /// Whether tokens of another sender's are too many to be at fault.
    private(set) var isForeign = false

    /// An answer that says the device is alive, or says nothing of it.
    mutating func alive(now: SteadyInstant) {
        turn(now)
        answers += 1
        mismatchedInARow = 0
    }

    /// An answer that says the token is another sender's. Where more than a few are, and more than a
    /// tenth of all answers, the credential or the project is at fault.
    mutating func mismatched(now: SteadyInstant) -> Action {
        turn(now)
        answers += 1
        mismatched += 1
        mismatchedInARow += 1
        let isOfFew = mismatched <= Self.minimumMismatched || mismatched * 10 <= answers
        if isOfFew, mismatchedInARow <= Self.minimumMismatched { return .disable }
        if isForeign { return .keep }
        isForeign = true
        return .keepAndAlarm(dead: mismatched, answers: answers)
    }

    /// An answer that says the device is gone.
    mutating func dead(now: SteadyInstant) -> Action {
        turn(now)
        answers += 1
        dead += 1
        if isStopped { return .keep }
        guard dead > Self.minimum, dead * 2 > answers else { return .disable }
        isStopped = true
        return .keepAndAlarm(dead: dead, answers: answers)
    }

    private mutating func turn(_ now: SteadyInstant) {
        guard now >= windowEnds else { return }
        if dead <= Self.minimum || dead * 2 <= answers { isStopped = false }
        if mismatchedInARow <= Self.minimumMismatched { isForeign = false }
        windowEnds = now.adding(milliseconds: Self.windowMilliseconds)
        answers = 0
        dead = 0
        mismatched = 0
    }
}
