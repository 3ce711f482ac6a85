package import EventLoop

/// Growing pauses between tries of what has to succeed in the end: 100 ms, doubled up to 5 s.
package struct Pause {
    private var next: Duration = .milliseconds(100)

    package init() {}

    /// Ends at once in a cancelled task: whoever loops over this looks at its own end condition.
    package mutating func wait(on loop: EventLoop) async {
        let part = Double.random(in: 0.75...1.25)
        try? await loop.sleep(for: next * part)
        next = min(next * 2, .seconds(5))
    }
}
