import Support

/// Collects the provider's requests for each token, as the simulator's log is bounded.
actor Collected {
    private let simulator: SimulatorControl
    private var next = 0
    private(set) var names: [String: [String]] = [:]
    private(set) var requests = 0

    init(_ simulator: SimulatorControl) {
        self.simulator = simulator
    }

    func update() async throws {
        while true {
            let (all, after) = try await simulator.received(after: next)
            guard after != next, !all.isEmpty else { return }
            next = after
            requests += all.count
            for request in all {
                names[request.token, default: []].append(request.header("apns-id") ?? "")
            }
        }
    }
}
