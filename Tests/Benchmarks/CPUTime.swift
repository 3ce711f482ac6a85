internal import Glibc

/// Returns the CPU time of one call of `body` in nanoseconds: the median of `batches` batches, each
/// of about `batch`. It counts CPU time of this thread, as other processes use the machine too.
func medianNanoseconds(
    batches: Int = 15,
    batch: Duration = .milliseconds(20),
    _ body: () throws -> Void
) rethrows -> Double {
    var calls = 1
    var spent = try time(calls, body)
    while spent < batch / 2 {
        calls *= 2
        spent = try time(calls, body)
    }
    calls = max(1, Int(Double(calls) * (batch / spent)))
    var figures: [Double] = []
    for _ in 0..<batches {
        figures.append(try time(calls, body) / .nanoseconds(1) / Double(calls))
    }
    return figures.sorted()[batches / 2]
}

private func time(_ calls: Int, _ body: () throws -> Void) rethrows -> Duration {
    let start = threadTime()
    for _ in 0..<calls { try body() }
    return threadTime() - start
}

private func threadTime() -> Duration {
    var now = timespec()
    unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return .seconds(now.tv_sec) + .nanoseconds(now.tv_nsec)
}
