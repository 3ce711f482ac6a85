internal import JSON

/// An object of a changeset, or the target of a link: its class and its primary key.
struct ObjectReference: Hashable {
    let table: Int32
    let key: InternedKey
}

/// The primary key of an object within its changeset.
struct InternedKey: Hashable {
    enum Kind: UInt8 { case null, integer, string, objectID, uuid, global }

    /// A longer text would be hashed for each object, and each link to it.
    static let maximumBytes = 4096

    let kind: Kind
    /// An integer, the index of a string, or the first 8 bytes of an id.
    var high: UInt64 = 0
    var low: UInt64 = 0

    /// Resolves the key by a function that makes the text of an interned string.
    func resolved(_ text: (Int32) -> String) -> RealmKey {
        switch kind {
        case .null: .null
        case .integer: .integer(Int64(bitPattern: high))
        case .string: .string(text(Int32(truncatingIfNeeded: high)))
        case .objectID: .objectID(high: high, low: UInt32(truncatingIfNeeded: low))
        case .uuid: .uuid(high: high, low: low)
        case .global: .global
        }
    }
}

/// One step of a path: the index of an element, or the index of an interned name.
enum PathStep: Equatable {
    case element(Int)
    case member(Int32)
}

/// The meaning of one instruction.
enum Instruction {
    case declaration
    case create(ObjectReference)
    case erase(ObjectReference)
    /// A change at the reader's `path`.
    case change(ObjectReference, Change)

    enum Change {
        case update(Payload)
        case add(Int64)
        case insert(Payload, at: Int, priorSize: Int)
        case move(from: Int, to: Int, priorSize: Int)
        case remove(at: Int, priorSize: Int)
        case clear(CollectionKind)
        case insertIntoSet(Payload)
        case eraseFromSet(Payload)
    }
}

/// The value of a change.
enum Payload {
    /// The value of a change that is not applied.
    case unused
    case value(JSONValue, bytes: Int)
    /// A value that JSON cannot express, with a text for people.
    case refused(RealmObjectFault, JSONValue)
    case collection(CollectionKind)
    case erased
}

/// The reason why one object cannot be stored, although its changeset is valid.
package enum RealmObjectFault: String, Error, Sendable {
    case nullKey = "a null key cannot be stored"
    case globalKey = "an object needs a primary key"
    case notFinite = "NaN and infinity cannot be stored"
    case time = "a time must be in the years 0001 to 9999"
    case text = "a string is not valid UTF-8"
    case tooLarge = "the object is too large"
    case tooManyChanges = "the object has too many changes"
    case path = "a change of the object leads nowhere"
    case longKey = "a key exceeds 4 KiB"
    case longName = "a name exceeds 1 KiB"
}

/// A collection, as an instruction names it.
enum CollectionKind { case list, object }
