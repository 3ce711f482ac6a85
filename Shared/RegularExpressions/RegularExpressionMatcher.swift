internal import CPCRE2
internal import Glibc

/// The result of a search.
package enum SearchResult: Sendable, Equatable {
    case found
    case notFound
    /// The limit of steps, depth or memory was reached before the search ended.
    case tookTooLong
}

/// Searches strings for patterns within a budget of steps. Confined to its owner.
///
/// A step is one item of the pattern tried, or one byte of the string passed over between two of
/// them: PCRE2 calls us before each item, and we stop it when the budget is spent. An item that
/// takes PCRE2 longer costs more: a counted one, as it may fail at the last, and a class whose
/// members are compared one by one, as does each byte passed over if the pattern has such a class.
/// So the limit is one of time, whatever the pattern backtracks over, and the same on each machine:
/// about 10 ns a step. PCRE2's own limits and the thread's clock are the fallback.
@safe
package final class RegularExpressionMatcher {
    /// The budget of one search: 1 ms.
    package static let stepsPerSearch = 100_000
    /// The limit of the thread's processor time, in nanoseconds: the fallback for what the steps
    /// miss.
    fileprivate static let maximumNanoseconds = 20_000_000

    private let matchData: OpaquePointer
    private let context: OpaquePointer
    private var counter = StepCounter()

    package init() {
        guard let matchData = unsafe pcre2_match_data_create_8(1, nil),
            let context = unsafe pcre2_match_context_create_8(nil)
        else { fatalError("out of memory") }
        unsafe self.matchData = matchData
        unsafe self.context = context
        // PCRE2 restarts these counts for each place of the string, in its own units: the step
        // count ends a search earlier, unless a pattern evades it.
        unsafe pcre2_set_match_limit_8(context, 1_000_000)
        unsafe pcre2_set_depth_limit_8(context, 100_000)
        unsafe pcre2_set_heap_limit_8(context, 16 * 1024)
    }

    deinit {
        unsafe pcre2_match_data_free_8(matchData)
        unsafe pcre2_match_context_free_8(context)
    }

    /// Searches for the pattern anywhere in the string, with a budget of its own.
    package func search(_ expression: RegularExpression, in text: String) -> SearchResult {
        var steps = Self.stepsPerSearch
        return search(expression, in: text, steps: &steps)
    }

    /// Searches for the pattern anywhere in the string, within a budget that several searches
    /// share: `steps` is the rest of it. One search takes at most `stepsPerSearch`; with none left
    /// the answer is `tookTooLong`.
    package func search(
        _ expression: RegularExpression,
        in text: String,
        steps: inout Int
    ) -> SearchResult {
        let allowed = min(steps, Self.stepsPerSearch)
        guard allowed > 0, let code = unsafe expression.code.pointer else { return .tookTooLong }
        counter = unsafe StepCounter(left: allowed, stepsPerByte: expression.stepsPerByte)
        var text = text
        let result = text.withUTF8 { bytes in
            unsafe expression.itemCosts.withUnsafeBufferPointer { costs in
                unsafe counter.itemCosts = costs
                defer { unsafe counter.itemCosts = UnsafeBufferPointer(start: nil, count: 0) }
                return unsafe withUnsafeMutablePointer(to: &counter) { counter in
                    unsafe pcre2_set_callout_8(context, countStep, counter)
                    return unsafe pcre2_match_8(
                        code,
                        bytes.baseAddress,
                        bytes.count,
                        0,
                        UInt32(PCRE2_NO_UTF_CHECK),
                        matchData,
                        context
                    )
                }
            }
        }
        steps -= allowed - max(counter.left, 0)
        switch result {
        case 0...: return .found
        case PCRE2_ERROR_NOMATCH: return .notFound
        // The step limit, PCRE2's limits, or lack of memory.
        default: return .tookTooLong
        }
    }
}

/// The remaining budget of a search, and its place when it was last counted.
@safe
private struct StepCounter {
    var left = 0
    var place = 0
    var stepsPerByte = 1
    /// The costs of the pattern's items, for the duration of the search.
    var itemCosts = unsafe UnsafeBufferPointer<UInt8>(start: nil, count: 0)
    var calls = 0
    var deadline = 0

    /// Counts an item that is tried.
    ///
    /// - Parameters:
    ///   - item: Its place in the pattern.
    ///   - place: The place in the string.
    /// - Returns: Whether the search may continue.
    mutating func count(item: Int, at place: Int) -> Bool {
        left -= abs(place - self.place) * stepsPerByte
        left -= unsafe item < itemCosts.count ? 1 << Int(itemCosts[item]) : 1
        self.place = place
        calls += 1
        if calls & 1023 == 0 {
            let now = Self.threadNanoseconds()
            if deadline == 0 { deadline = now + RegularExpressionMatcher.maximumNanoseconds }
            if now > deadline { left = 0 }
        }
        return left > 0
    }

    private static func threadNanoseconds() -> Int {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}

/// Called by PCRE2 before each item: 0 continues, less than 0 ends the search with that error.
private func countStep(
    _ block: UnsafeMutablePointer<pcre2_callout_block_8>?,
    _ context: UnsafeMutableRawPointer?
) -> Int32 {
    guard let block = unsafe block, let context = unsafe context else {
        return PCRE2_ERROR_CALLOUT
    }
    let counter = unsafe context.assumingMemoryBound(to: StepCounter.self)
    let item = unsafe block.pointee.pattern_position
    let place = unsafe block.pointee.current_position
    return unsafe counter.pointee.count(item: item, at: place) ? 0 : PCRE2_ERROR_CALLOUT
}
