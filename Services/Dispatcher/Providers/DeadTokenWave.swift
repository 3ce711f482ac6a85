import PushCore

/// Distinguishes single dead tokens from a sudden wave of them (promise 9). A wave is more often
/// our own mistake than the end of so many devices, so it stops the clean-up and raises an alarm.
///
/// There is one for each app and provider. It counts answers in a window. A wave begins when more
/// than `minimum` tokens are dead and they are more than half of all answers. Then no token is
/// disabled until a whole window has passed without such a share.
///
/// A token that belongs to another sender is disabled only while there are few: `mismatched` stops
/// at `minimumMismatched` of them, until the provider accepts a push again.
struct DeadTokenWave: Equatable {
    enum Action: Equatable {
        /// The token may be disabled.
        case disable
        /// The token must stay enabled; only its delivery has failed.
        case keep
        /// As `keep`, and alarms the operator: the wave has just begun.
        case keepAndAlarm(dead: Int, answers: Int)
    }

    /// The most dead tokens in a window that are never a wave.
    static let minimum = 100
    static let windowMilliseconds: Int64 = 60_000
    /// The most tokens of another sender, in a row or in a window, that are blamed on the tokens.
    static let minimumMismatched = 3

    private var windowEnds = MonotonicInstant.earliest
    private var answers = 0
    private var dead = 0
    private(set) var isStopped = false
    /// Mismatches since the provider accepted a push, and in this window.
    private var mismatchedInARow = 0
    private var mismatched = 0
    /// Whether so many tokens belong to another sender that the tokens are not to blame.
    private(set) var isForeign = false

    /// Counts an answer that says that the device is alive.
    mutating func alive(now: MonotonicInstant) {
        turn(now)
        answers += 1
        mismatchedInARow = 0
    }

    /// Counts an answer that says that the token belongs to another sender. If there are more than
    /// a few such answers, and more than a tenth of all, the credential or the project is at fault.
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
