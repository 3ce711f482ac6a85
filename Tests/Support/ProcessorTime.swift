import Foundation

/// Measures the processor time of a body on its thread, which does not depend on the load of the
/// machine.
package func processorTime(_ body: () -> Void) -> Duration {
    func now() -> Duration {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
    let begun = now()
    body()
    return now() - begun
}
