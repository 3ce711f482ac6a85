import JSON
import PushCore

/// Whom an erasure or an export is about: one device, or one user with all of his devices.
package struct Subject: Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable {
        /// By its object id, or LeanCloud's own `installationId`.
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

/// The texts by which Carillon knows a subject.
struct SubjectNames: Equatable, Sendable {
    /// Of its installations; what most of its deliveries are filed under.
    private(set) var objectIDs: TextSet = []
    /// Of its tokens, in hex: what the deliveries of pushes that name tokens are filed under.
    private(set) var tokenHashes: TextSet = []
    /// All that a text may name it by: the ids, and the tokens in the forms that they are written in.
    private(set) var texts: TextSet = []

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

    /// An id that push sync knows one of its devices by.
    mutating func add(device: String) { texts.insert(device) }

    mutating func formUnion(_ other: SubjectNames) {
        objectIDs.formUnion(other.objectIDs)
        tokenHashes.formUnion(other.tokenHashes)
        texts.formUnion(other.texts)
    }

    var targets: [String] { objectIDs.union(tokenHashes).sorted() }

    /// How they stand in a text, and inside of one that is JSON.
    var needles: [String] {
        let written = texts.map { String(JSONValue.string($0).text.dropFirst().dropLast()) }
        return texts.union(written).sorted()
    }

    var json: JSONValue {
        func list(_ set: TextSet) -> JSONValue { .array(set.sorted().map(JSONValue.string)) }
        return [
            "objectIds": list(objectIDs), "tokenHashes": list(tokenHashes), "texts": list(texts),
        ]
    }

    init(_ json: JSONValue) {
        func set(_ name: String) -> TextSet {
            TextSet((json[name]?.array ?? []).compactMap(\.string))
        }
        objectIDs = set("objectIds")
        tokenHashes = set("tokenHashes")
        texts = set("texts")
    }
}
