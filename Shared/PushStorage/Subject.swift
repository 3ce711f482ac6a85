import JSON
import Postgres
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
    private(set) var objectIDs: Set<String> = []
    /// Of its tokens, in hex: what the deliveries of pushes that name tokens are filed under.
    private(set) var tokenHashes: Set<String> = []
    /// All that a text may name it by: the ids, and the tokens in the forms that they are written in.
    private(set) var texts: Set<String> = []

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
        func list(_ set: Set<String>) -> JSONValue { .array(set.sorted().map(JSONValue.string)) }
        return [
            "objectIds": list(objectIDs), "tokenHashes": list(tokenHashes), "texts": list(texts),
        ]
    }

    init(_ json: JSONValue) {
        func set(_ name: String) -> Set<String> {
            Set((json[name]?.array ?? []).compactMap(\.string))
        }
        objectIDs = set("objectIds")
        tokenHashes = set("tokenHashes")
        texts = set("texts")
    }
}

/// Takes a subject's names out of a push's request, so that what is left still reads as a request,
/// and selects everyone else whom it selected.
struct Redaction {
    static let mark = "[erased]"

    private let names: Set<String>
    /// Those that are long enough to be looked for inside of other texts.
    private let inner: [[UInt8]]

    init(_ names: SubjectNames) {
        self.names = names.texts
        inner = names.texts.map { Array($0.utf8) }.filter { $0.count >= 4 }
            .sorted { $0.count > $1.count }
    }

    /// The request without the names. One that was for this subject alone loses its content, too.
    func redacted(_ request: JSONObject) -> JSONObject {
        var result: JSONObject = [:]
        let isTheirsAlone = isForNobodyElse(request)
        for (key, value) in request {
            switch key {
            case "id", "app", "source": result[key] = value
            case "data" where isTheirsAlone: result[key] = ["alert": .string(Self.mark)]
            case "native" where isTheirsAlone: continue
            default: result[redacted(key)] = redacted(value)
            }
        }
        if isTheirsAlone, result["data"] == nil { result["data"] = ["alert": .string(Self.mark)] }
        return result
    }

    func isForNobodyElse(_ request: JSONObject) -> Bool {
        var named = 0
        for list in ["installations", "identities"] {
            for element in request[list]?.array ?? [] {
                guard let name = element.string, names.contains(name) else { return false }
                named += 1
            }
        }
        for element in request["tokens"]?.array ?? [] {
            guard let token = element["token"]?.string, names.contains(token) else { return false }
            named += 1
        }
        return named > 0
    }

    /// In lists names are left out; elsewhere a mark stands in their place.
    func redacted(_ value: JSONValue) -> JSONValue {
        switch value {
        case .null, .bool, .integer, .double, .number: return value
        case .string(let text): return .string(redacted(text))
        case .array(let elements):
            return .array(
                elements.compactMap { element in
                    if let text = element.string, names.contains(text) { return nil }
                    if let token = element["token"]?.string, names.contains(token) { return nil }
                    return redacted(element)
                }
            )
        case .object(let object):
            return .object(JSONObject(object.map { (redacted($0.key), redacted($0.value)) }))
        }
    }

    func redacted(_ text: String) -> String {
        if names.contains(text) { return Self.mark }
        var bytes = Array(text.utf8)
        var isChanged = false
        for name in inner where name.count < bytes.count {
            var start = 0
            while start + name.count <= bytes.count {
                let end = start + name.count
                guard bytes[start..<end].elementsEqual(name),
                    start == 0 || !Self.isOfWord(bytes[start - 1]),
                    end == bytes.count || !Self.isOfWord(bytes[end])
                else {
                    start += 1
                    continue
                }
                bytes.replaceSubrange(start..<end, with: Self.mark.utf8)
                start += Self.mark.utf8.count
                isChanged = true
            }
        }
        return isChanged ? String(decoding: bytes, as: UTF8.self) : text
    }

    /// A name that goes on is another's.
    private static func isOfWord(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "_"), UInt8(ascii: "-"), 0x80...:
            true
        default: false
        }
    }
}
