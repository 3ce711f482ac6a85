import ConfigStorage
import Observability
import RemoteConfig

/// The counters of remote config, looked up once.
struct ConfigMetrics: Sendable {
    private let fetches: [CompiledConfig.FetchState: Counter]
    private let throttled: Counter
    private let publishes: [ConfigUpdateType: Counter]

    init(_ metrics: Metrics) {
        let states: [CompiledConfig.FetchState] = [.update, .noChange, .noTemplate, .emptyConfig]
        fetches = Dictionary(
            uniqueKeysWithValues: states.map {
                ($0, metrics.counter(.configFetches, ["state": $0.rawValue.lowercased()]))
            }
        )
        throttled = metrics.counter(.configFetches, ["state": "throttled"])
        publishes = Dictionary(
            uniqueKeysWithValues: ConfigUpdateType.allCases.map {
                ($0, metrics.counter(.configPublishes, ["type": $0.rawValue.lowercased()]))
            }
        )
    }

    func fetched(_ state: CompiledConfig.FetchState) { fetches[state]?.add() }

    func throttle() { throttled.add() }

    func published(_ type: ConfigUpdateType) { publishes[type]?.add() }
}
