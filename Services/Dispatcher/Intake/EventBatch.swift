import Outbox
import PushCore
import PushEvents
import PushProviders

/// The records of one batch, sorted into valid events and dead letters. Pure: no clock, no I/O.
struct EventBatch {
    /// An invalid record, and the reason.
    struct Unusable: Equatable {
        var record: IncomingRecord
        var reason: DeadLetterReason
    }

    /// A valid event with its push's id, and its record for a dead letter. A class, as it moves
    /// from list to list.
    final class Usable: Equatable, Sendable {
        let pushID: String
        let event: PushEvent
        let record: IncomingRecord

        init(pushID: String, event: PushEvent, record: IncomingRecord) {
            self.pushID = pushID
            self.event = event
            self.record = record
        }

        static func == (one: Usable, other: Usable) -> Bool {
            one.pushID == other.pushID && one.event == other.event && one.record == other.record
        }
    }

    private(set) var unusable: [Unusable] = []
    private(set) var usable: [Usable] = []
    /// The number of events that repeat an earlier one of the batch.
    private(set) var repeats = 0

    /// Reads the records in their order.
    init(
        _ records: [IncomingRecord],
        now: Instant,
        topics: KafkaTopics = KafkaTopics(),
        digest: Digest
    ) {
        var seen: Set<String> = []
        for record in records {
            do throws(DeadLetterReason) {
                let event = try PushEvent.decode(record, now: now, topics: topics)
                let pushID = event.pushID(digest: digest)
                guard seen.insert(pushID).inserted else {
                    repeats += 1
                    continue
                }
                try event.checkSize(includesPushID: false, in: record, topics)
                usable.append(Usable(pushID: pushID, event: event, record: record))
            } catch {
                unusable.append(Unusable(record: record, reason: error))
            }
        }
    }

    var apps: Set<String> { Set(usable.map(\.event.app)) }

    /// Rejects the events of unknown apps.
    mutating func keep(apps known: Set<String>) {
        var kept: [Usable] = []
        for item in usable {
            if known.contains(item.event.app) {
                kept.append(item)
            } else {
                unusable.append(
                    Unusable(record: item.record, reason: .unknownApp(item.event.app))
                )
            }
        }
        usable = kept
    }

    /// The apps of events that may become too large once the push's id is added.
    var appsInDoubt: Set<String> {
        Set(
            usable.lazy.filter { item in
                PushIdentity.includesPushID(source: item.event.source)
                    && item.event.request.isOfDoubtfulSize(bytes: item.record.value?.count ?? 0)
            }.map(\.event.app)
        )
    }

    /// Rejects the events that are too large with their push's id.
    mutating func checkSizes(ofAppsWithPushIDs apps: Set<String>, topics: KafkaTopics) {
        guard !apps.isEmpty else { return }
        var kept: [Usable] = []
        for item in usable {
            do throws(DeadLetterReason) {
                if apps.contains(item.event.app) {
                    try item.event.checkSize(includesPushID: true, in: item.record, topics)
                }
                kept.append(item)
            } catch {
                unusable.append(Unusable(record: item.record, reason: error))
            }
        }
        usable = kept
    }

    /// Rejects a valid event that cannot be stored.
    mutating func refuse(_ item: Usable, because reason: DeadLetterReason) {
        unusable.append(Unusable(record: item.record, reason: reason))
    }

    /// Divides events into groups, each of which takes its own turns: one for each app, so that an app with
    /// many events delays no other's. Events that can be planned at once stay together, in one
    /// transaction.
    ///
    /// - Parameters:
    ///   - items: The events, also of several apps.
    ///   - mustWait: Whether the next portion has to wait for others.
    ///   - portion: The most named devices of a portion.
    /// - Returns: Groups in the order of their first events, each in the order of the items.
    static func groups(_ items: [Usable], mustWait: Bool, portion: Int) -> [[Usable]] {
        guard !items.isEmpty else { return [] }
        let devices = items.reduce(0) { $0 + $1.namedDevices }
        guard mustWait || devices > portion else { return [items] }
        var apps: [String] = []
        var groups: [String: [Usable]] = [:]
        for item in items {
            let app = item.event.app
            if groups[app] == nil { apps.append(app) }
            groups[app, default: []].append(item)
        }
        return apps.compactMap { groups[$0] }
    }

    /// Cuts items into portions with a total weight of at most `limit`. A heavier item is a portion
    /// by itself.
    static func portions<Item>(
        _ items: [Item],
        limit: Int,
        weight: (Item) -> Int
    ) -> [[Item]] {
        var portions: [[Item]] = []
        var current: [Item] = []
        var total = 0
        for item in items {
            let own = weight(item)
            if !current.isEmpty, total + own > limit {
                portions.append(current)
                current = []
                total = 0
            }
            current.append(item)
            total += own
        }
        if !current.isEmpty { portions.append(current) }
        return portions
    }
}

extension EventBatch.Usable {
    /// The number of devices or users that it names one by one, at least 1.
    var namedDevices: Int {
        switch event.request.audience {
        case .tokens(let tokens): max(1, tokens.count)
        case .topic: 1
        case .installations(let selectors):
            max(
                1,
                selectors.installations?.count ?? 0,
                selectors.identities?.count ?? 0,
                selectors.condition?.namedDevices?.values.count ?? 0
            )
        }
    }
}
