import PushCore

/// Distinguishes single dead tokens from a sudden wave of them, which is more often our own mistake
/// than that of so many devices (promise 9): a wave stops the clean-up and raises an alarm.
///
/// One for each (app, provider). Counts answers in a window; after more than `minimum` dead ones that
/// are more than half of all answers, nothing is disabled until a whole window has passed without such
/// a share.
///
/// A token that belongs to another sender is disabled only if it is one of few: `mismatched` stops at
/// `minimumMismatched` of them, until the provider has accepted a push again.
struct DeadTokenWave: Equatable {
    enum Action: Equatable {
        /// The token may be disabled.
        case disable
        /// The token may not be disabled: its delivery has failed, the token stays.
        case keep
        /// As `keep`, and the operator has to be alarmed: the wave has just begun.
        case keepAndAlarm(dead: Int, answers: Int)
    }

    /// The most dead tokens in a window that are never a wave.
    static let minimum = 100
    static let windowMilliseconds: Int64 = 60_000
    /// The most tokens of another sender, in a row or in a window, that are each at fault.
    static let minimumMismatched = 3

    private var windowEnds = MonotonicInstant.earliest
    private var answers = 0
    private var dead = 0
    private(set) var isStopped = false
    /// Mismatches since the provider accepted a push, and in this window.
    private var mismatchedInARow = 0
    private var mismatched = 0
    /// Whether tokens of another sender are too many to be at fault.
    private(set) var isForeign = false

    /// Counts an answer that says that the device is alive.
    mutating func alive(now: MonotonicInstant) {
        turn(now)
        answers += 1
        mismatchedInARow = 0
    }

    /// Counts an answer that says that the token belongs to another sender. If these are more than a
    /// few, and more than a tenth of all answers, the credential or the project is at fault.
    mutating func mismatched(now: MonotonicInstant) -> Action {
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

    /// Counts an answer that says that the device is gone.
    mutating func dead(now: MonotonicInstant) -> Action {
        turn(now)
        answers += 1
        dead += 1
        if isStopped { return .keep }
        guard dead > Self.minimum, dead * 2 > answers else { return .disable }
        isStopped = true
        return .keepAndAlarm(dead: dead, answers: answers)
    }

    private mutating func turn(_ now: MonotonicInstant) {
        guard now >= windowEnds else { return }
        if dead <= Self.minimum || dead * 2 <= answers { isStopped = false }
        if mismatchedInARow <= Self.minimumMismatched { isForeign = false }
        windowEnds = now.adding(milliseconds: Self.windowMilliseconds)
        answers = 0
        dead = 0
        mismatched = 0
    }
}
