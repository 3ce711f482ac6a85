/// Lets others on the loop have their turn while a large request is worked on: a schema may ask much of
/// each of a thousand objects.
struct Breather {
    private static let turn = Duration.milliseconds(20)

    private var since = ContinuousClock.now

    mutating func breathe() async {
        guard ContinuousClock.now - since > Self.turn else { return }
        await Task.yield()
        since = .now
    }
}
