import JSON
import PushCore
import Storage

/// The subject of an erasure or an export: one device, or one user with all devices.
package struct Subject: Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable {
        /// A device by its object id, or LeanCloud's own `installationId`.
        case installation
        case identity
    }

    package var app: String
    package var kind: Kind
    package var id: String

    package init(app: String, _ kind: Kind, _ id: String) {
        self.app = app
        self.kind = kind
        self.id = id
    }
}

/// The strings by which Carillon knows a subject.
struct SubjectNames: Equatable, Sendable {
    /// The object ids of its installations; the targets of most of its deliveries.
    private(set) var objectIDs: ExactStringSet = []
    /// The hashes of its tokens, in hex: the targets of deliveries by token.
    private(set) var tokenHashes: ExactStringSet = []
    /// All strings that may name it: the ids, and the tokens in the forms that they are written in.
    private(set) var texts: ExactStringSet = []

    private static let tokenFields = [
        "deviceToken", "registrationId", "deviceUri", "subscriptionUri", "pushChannel",
    ]

    init(_ subject: Subject) {
        texts = [subject.id]
        if subject.kind == .installation { objectIDs = [subject.id] }
    }

    mutating func add(_ installation: Installation, tokenHash: String?) {
        objectIDs.insert(installation.objectID)
        texts.insert(installation.objectID)
        if let id = installation.installationID { texts.insert(id) }
        if let token = installation.token { texts.formUnion([token, token.uppercased()]) }
        for field in Self.tokenFields {
            guard let token = installation.object[field]?.string, !token.isEmpty else { continue }
            texts.insert(token)
        }
        if let tokenHash { tokenHashes.insert(tokenHash) }
    }

    /// Adds an id of one of its devices in push sync.
    mutating func add(device: String) { texts.insert(device) }

    mutating func formUnion(_ other: SubjectNames) {
        objectIDs.formUnion(other.objectIDs)
        tokenHashes.formUnion(other.tokenHashes)
        texts.formUnion(other.texts)
    }

    var targets: [String] { objectIDs.union(tokenHashes).sorted() }

    /// The names as a string contains them, plain or inside of JSON.
    var needles: [String] {
        let written = texts.map { String(JSONValue.string($0).text.dropFirst().dropLast()) }
        return texts.union(written).sorted()
    }

    var json: JSONValue {
        func list(_ set: ExactStringSet) -> JSONValue { .array(set.sorted().map(JSONValue.string)) }
        return [
            "objectIds": list(objectIDs), "tokenHashes": list(tokenHashes), "texts": list(texts),
        ]
    }

    init(_ json: JSONValue) {
        func set(_ name: String) -> ExactStringSet {
            ExactStringSet((json[name]?.array ?? []).compactMap(\.string))
        }
        objectIDs = set("objectIds")
        tokenHashes = set("tokenHashes")
        texts = set("texts")
    }
}
