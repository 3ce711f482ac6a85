import EventLoop

/// Lets others on the loop have their turn while a large request is worked on: a schema may ask much of
/// each of a thousand objects.
struct Breather {
    let loop: EventLoop
    private static let turn = Duration.milliseconds(20)
    /// A turn of the loop has to pass: a task that only yields comes again before any descriptor does.
    private static let pause = Duration.milliseconds(1)

    private var since = ContinuousClock.now

    init(on loop: EventLoop) { self.loop = loop }

    mutating func breathe() async {
        guard ContinuousClock.now - since > Self.turn else { return }
        try? await loop.sleep(for: Self.pause)
        since = .now
    }
}
