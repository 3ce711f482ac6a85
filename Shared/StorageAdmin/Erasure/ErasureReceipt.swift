package import JSON
import Postgres
package import PushCore
import Storage

/// The rows that an erasure has erased, by kind.
package struct ErasureCounts: Equatable, Sendable {
    package private(set) var byName: [String: Int] = [:]

    /// The names in display order.
    package static let names = [
        "installations", "configFetches", "identities", "deliveries", "endedDeliveries", "pushes",
        "outboxRecords", "eventKeys", "shards", "securePayloads", "secureReaders", "secureSecrets",
        "syncDatasets", "syncRecords", "syncDevices", "syncSubscriptions",
        "connectionMessages", "ingestObjects", "pushReceipts", "auditEntries",
    ]

    init() { self.init([:]) }

    init(_ json: JSONObject) {
        for name in Self.names { byName[name] = json[name]?.integer ?? 0 }
    }

    subscript(_ name: String) -> Int {
        get { byName[name] ?? 0 }
        set { byName[name] = newValue }
    }

    package var isNothing: Bool { byName.values.allSatisfy { $0 == 0 } }

    package var json: JSONObject {
        JSONObject(Self.names.map { ($0, JSONValue(self[$0])) })
    }
}

/// The receipt of an erasure: the counts and the time. Names the subject by a hash alone.
package struct ErasureReceipt: Equatable, Sendable {
    package var app: String
    package var kind: Subject.Kind
    /// SHA-256 of `<app>/<kind>/<id>`, in hex.
    package var subject: String
    package var erased: ErasureCounts
    /// The number of shards that were still sending to the subject when the erasure ended. Each may write
    /// one more delivery: the erasure must be repeated some seconds later.
    package var inFlight: Int
    package var at: Instant

    /// Whether no such subject was known.
    package var isUnknownSubject: Bool { erased.isNothing && inFlight == 0 }

    package var json: JSONObject {
        [
            "app": .string(app), "kind": .string(kind.rawValue), "subject": .string(subject),
            "erasedAt": .string(at.iso8601), "erased": .object(erased.json),
            "inFlight": JSONValue(inFlight),
        ]
    }
}
