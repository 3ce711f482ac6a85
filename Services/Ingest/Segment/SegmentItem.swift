import Cryptography
import JSON
import PushCore

/// One call of Segment's: an item of a batch, or a whole body.
struct SegmentItem: Sendable {
    enum Kind: String, CaseIterable, Sendable {
        case track, identify, group, page, screen, alias

        /// The type of the object that it becomes.
        var type: BuiltInIngestType {
            switch self {
            case .track: .segmentTrack
            case .identify: .segmentIdentify
            case .group: .segmentGroup
            case .page: .segmentPage
            case .screen: .segmentScreen
            case .alias: .segmentAlias
            }
        }
    }

    static let maximumBytes = 32 << 10
    static let tooLarge = RefusedObject(
        pointer: "",
        reason: "an item has at most \(maximumBytes) bytes"
    )

    let kind: Kind
    /// The object as sent, with its `_id`.
    let object: JSONObject

    /// Parses an item. `kind` is the kind of a single call, as its path states; `nil` in a batch.
    ///
    /// - Throws: `RefusedObject` if the item is invalid.
    init(_ value: JSONValue, _ kind: Kind?) throws(RefusedObject) {
        guard case .object(var object) = value else {
            throw RefusedObject(pointer: "", reason: "must be an object")
        }
        // Browsers send the write key with each call. It must not be stored, where others could
        // read it.
        object["writeKey"] = nil
        if let kind {
            object["type"] = .string(kind.rawValue)
            self.kind = kind
        } else {
            guard let kind = object["type"]?.string.flatMap(Kind.init(rawValue:)) else {
                let known = Kind.allCases.map(\.rawValue).joined(separator: ", ")
                throw RefusedObject(pointer: "/type", reason: "must be one of \(known)")
            }
            self.kind = kind
        }
        guard JSONValue.object(object).bytes.count <= Self.maximumBytes else {
            throw Self.tooLarge
        }
        object["_id"] = .string(Self.id(of: object))
        self.object = object
    }

    /// Returns `messageId` if it can be an id, else an id derived from it, so that a repeat is deduplicated.
    private static func id(of object: JSONObject) -> String {
        guard let message = object["messageId"]?.string, !message.isEmpty else {
            return PushIdentity.uuidText(randomBytes(16))
        }
        return IngestID.canonical(message)
            ?? IngestID.derived(from: ["segment", message], digest: sha256)
    }
}
