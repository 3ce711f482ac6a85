import Observability
import SecureStorage

/// The counters of secure payloads, looked up once.
struct SecureMetrics: Sendable {
    private let stored: [Bool: Counter]
    private let read: [Bool: Counter]
    private let refused: [SecureRefusal: Counter]
    private let expired: Counter
    private let consumed: Counter
    private let tamperedWith: Counter

    init(_ metrics: Metrics) {
        func both(_ metric: Metric, _ label: String, _ yes: String, _ no: String) -> [Bool: Counter]
        {
            [
                true: metrics.counter(metric, [label: yes]),
                false: metrics.counter(metric, [label: no]),
            ]
        }
        stored = both(.securePayloadsKept, "sealed", "devices", "at_rest")
        read = both(.securePayloadsRead, "first", "true", "false")
        refused = Dictionary(
            uniqueKeysWithValues: SecureRefusal.allCases.map {
                ($0, metrics.counter(.securePayloadsRefused, ["reason": $0.rawValue]))
            }
        )
        expired = metrics.counter(.securePayloadsEnded, ["end": "expired"])
        consumed = metrics.counter(.securePayloadsEnded, ["end": "read_once"])
        tamperedWith = metrics.counter(.secureTampered)
    }

    func countStored(forDevices isSealed: Bool) { stored[isSealed]?.add() }

    func read(isFirst: Bool) { read[isFirst]?.add() }

    func refuse(_ refusal: SecureRefusal) {
        refused[refusal]?.add()
        if refusal == .tampered { tamperedWith.add() }
    }

    func emptied(_ emptied: SecurePayloadStore.Emptied) {
        if emptied.expired > 0 { expired.add(emptied.expired) }
        if emptied.consumed > 0 { consumed.add(emptied.consumed) }
    }
}
