import JSON
import JSONSchema
import PushCore

/// Why one object is not taken.
struct RefusedObject: Error, Equatable, Sendable {
    /// Where it has one that can be used.
    var id: String?
    /// RFC 6901, into the object: where its fault is.
    let pointer: String
    let reason: String

    init(id: String? = nil, pointer: String, reason: String) {
        self.id = id
        self.pointer = JSONPointer.cut(pointer)
        self.reason = reason
    }
}

/// What an object may be whatever its type says.
enum ObjectLimits {
    static let bytes = 256 << 10
    static let levels = 32
    /// Of a whole body, deeper than any object may be: what lies between is refused by itself.
    static let levelsOfBody = 512
    static let valuesOfBody = 200_000
    static let objects = 1000
    static let bodyBytes = 4 << 20
}

/// Reads objects of one type: the id by which each is known, whether it is what its type says.
///
/// Confined to its owner.
struct ObjectReader {
    let type: KnownType
    let checker: SchemaChecker
    /// Whether the wrappers of extended JSON are to be taken off.
    var isExtended = false

    /// - Parameters:
    ///   - value: What was sent.
    ///   - missingID: The id of an object that brings none; `nil`: it is refused.
    /// - Returns: The object as it is kept.
    /// - Throws: `RefusedObject`.
    func read(
        _ value: JSONValue,
        missingID: () -> String? = { nil }
    ) throws(RefusedObject) -> (id: String, object: JSONObject) {
        guard case .object(var object) = value else {
            throw RefusedObject(pointer: "", reason: "must be an object")
        }
        if isExtended {
            do throws(RefusedObject) {
                object = try ExtendedJSON.plain(object)
            } catch {
                let id = try? Self.id(of: object, { nil })
                throw RefusedObject(id: id, pointer: error.pointer, reason: error.reason)
            }
        }
        let id = try Self.id(of: object, missingID)
        if object["_id"]?.string != id { object["_id"] = .string(id) }
        if let refused = ObjectWalk.fault(in: object) {
            throw RefusedObject(id: id, pointer: refused.pointer, reason: refused.reason)
        }
        if let violation = type.schema.check(.object(object), by: checker) {
            throw RefusedObject(id: id, pointer: violation.pointer, reason: violation.reason)
        }
        return (id, object)
    }

    static let idReason = "must be an ObjectId of 24 hexadecimal digits, or a UUID"

    private static func id(
        of object: JSONObject,
        _ missingID: () -> String?
    ) throws(RefusedObject) -> String {
        guard let value = object["_id"] else {
            guard let made = missingID() else {
                throw RefusedObject(pointer: "/_id", reason: "is required: " + idReason)
            }
            return made
        }
        let text =
            switch value {
            case .string(let text): text
            case .object(let wrapper) where wrapper.count == 1:
                wrapper["$oid"]?.string
            default: nil as String?
            }
        guard let id = text.flatMap(IngestID.canonical) else {
            throw RefusedObject(pointer: "/_id", reason: idReason)
        }
        return id
    }
}

/// Looks at every value of an object, for what none may hold.
struct ObjectWalk {
    static func fault(in object: JSONObject) -> RefusedObject? {
        var walk = ObjectWalk()
        return walk.fault(in: .object(object), level: 1)
    }

    private var path: [Step] = []
    /// What numbers that are written short take more where they are kept: `jsonb` has no exponents.
    private var digits = 0
    private static let maximumDigits = 128 << 10
    /// Of one number. Twice what doubles go to.
    private static let maximumDigitsOfNumber = 800

    private enum Step {
        case member(String)
        case element(Int)
    }

    private mutating func fault(in value: JSONValue, level: Int) -> RefusedObject? {
        switch value {
        case .null, .bool, .integer: return nil
        case .double(let number):
            guard number != 0, !(1e-4..<1e16).contains(abs(number)) else { return nil }
            return fault(ofNumber: value)
        case .number: return fault(ofNumber: value)
        case .string(let text):
            return text.utf8.contains(0) ? refused("holds U+0000") : nil
        case .array(let elements):
            guard level <= ObjectLimits.levels else { return tooDeep() }
            for (index, element) in elements.enumerated() {
                path.append(.element(index))
                if let fault = fault(in: element, level: level + 1) { return fault }
                path.removeLast()
            }
            return nil
        case .object(let members):
            guard level <= ObjectLimits.levels else { return tooDeep() }
            for (key, member) in members {
                path.append(.member(key))
                if key.utf8.contains(0) { return refused("has a name that holds U+0000") }
                if let fault = fault(in: member, level: level + 1) { return fault }
                path.removeLast()
            }
            return nil
        }
    }

    private mutating func fault(ofNumber value: JSONValue) -> RefusedObject? {
        let count = value.keptByteCount
        digits += count
        guard count <= Self.maximumDigitsOfNumber else {
            return refused("a number has at most \(Self.maximumDigitsOfNumber) digits, written out")
        }
        guard digits <= Self.maximumDigits else {
            return refused("its numbers have too many digits, written out")
        }
        return nil
    }

    private func tooDeep() -> RefusedObject {
        refused("an object has at most \(ObjectLimits.levels) levels")
    }

    private func refused(_ reason: String) -> RefusedObject {
        let pointer = path.map { step in
            switch step {
            case .member(let name): "/" + JSONPointer.escaped(name)
            case .element(let index): "/\(index)"
            }
        }
        return RefusedObject(pointer: pointer.joined(), reason: reason)
    }
}

/// RFC 6901.
enum JSONPointer {
    /// The longest that is answered: names are as long as their sender likes.
    private static let maximumBytes = 1024

    /// As much of a pointer as is answered, cut at a part.
    static func cut(_ pointer: String) -> String {
        guard pointer.utf8.count > maximumBytes else { return pointer }
        let head = pointer.utf8.prefix(maximumBytes + 1)
        return head.lastIndex(of: UInt8(ascii: "/")).map { String(pointer[..<$0]) } ?? ""
    }

    /// A name as a part of a pointer.
    static func escaped(_ name: String) -> String {
        guard name.utf8.contains(where: { $0 == UInt8(ascii: "~") || $0 == UInt8(ascii: "/") })
        else { return name }
        var escaped = ""
        for scalar in name.unicodeScalars {
            switch scalar {
            case "~": escaped += "~0"
            case "/": escaped += "~1"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
        return escaped
    }
}
