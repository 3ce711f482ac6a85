import Observability
import RealmSync

/// The counters of Realm's clients, looked up once.
struct RealmMetrics: Sendable {
    let sockets: Gauge
    let refusedSockets: Counter
    let refusedMemory: Counter
    let paused: Counter
    let dropped: Counter
    let unreadable: Counter
    let complaints: Counter
    let held: Gauge
    private let ends: [End: Counter]

    private enum End: String, CaseIterable {
        case malformed, unexpected, compression
        case tooLarge = "too_large"
        case tooManySessions = "too_many_sessions"
        case tooManyUploads = "too_many_uploads"
    }

    init(_ metrics: Metrics) {
        sockets = metrics.gauge(.realmSockets)
        refusedSockets = metrics.counter(.ingestLimited, ["limit": "realm_sockets"])
        refusedMemory = metrics.counter(.ingestLimited, ["limit": "realm_held_bytes"])
        paused = metrics.counter(.realmPauses)
        dropped = metrics.counter(.realmDropped)
        unreadable = metrics.counter(.realmUnreadable)
        complaints = metrics.counter(.realmComplaints)
        held = metrics.gauge(.realmHeldBytes)
        ends = Dictionary(
            uniqueKeysWithValues: End.allCases.map {
                ($0, metrics.counter(.realmEnds, ["reason": $0.rawValue]))
            }
        )
    }

    func ended(_ fault: RealmFault) {
        let end: End =
            switch fault {
            case .malformed: .malformed
            case .unexpected: .unexpected
            case .tooLarge: .tooLarge
            case .tooManySessions: .tooManySessions
            case .tooManyUploads: .tooManyUploads
            case .compression: .compression
            }
        ends[end]?.add()
    }
}
