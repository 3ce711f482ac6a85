import JSON
import JSONSchema
import PushCore

/// The reason why one object is refused.
struct RefusedObject: Error, Equatable, Sendable {
    /// The object's id, if it has a valid one.
    var id: String?
    /// The RFC 6901 pointer to the fault within the object.
    let pointer: String
    let reason: String

    init(id: String? = nil, pointer: String, reason: String) {
        self.id = id
        self.pointer = JSONPointer.cut(pointer)
        self.reason = reason
    }
}

/// The limits of an object, whatever its type.
enum ObjectLimits {
    static let bytes = 256 << 10
    static let levels = 32
    /// The depth of a whole body. It is larger than that of an object, so that only the object is
    /// refused if its depth is between the two.
    static let levelsOfBody = 512
    static let valuesOfBody = 200_000
    static let objects = 1000
    static let bodyBytes = 4 << 20
}

/// Reads objects of one type: finds the id of each, and validates it against the type.
///
/// Confined to its owner.
struct ObjectReader {
    let type: KnownType
    let checker: SchemaChecker
    /// Whether wrappers of extended JSON are removed.
    var isExtended = false

    /// - Parameters:
    ///   - value: The object as sent.
    ///   - missingID: Returns the id for an object without one. If it returns `nil`, the object is
    ///     refused.
    /// - Returns: The object to store.
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
        if let refused = ObjectValidator.fault(in: object) {
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

/// Checks every value of an object against the limits of all types.
struct ObjectValidator {
    static func fault(in object: JSONObject) -> RefusedObject? {
        var walk = ObjectValidator()
        return walk.fault(in: .object(object), level: 1)
    }

    private var path: [Step] = []
    /// The digits of numbers as they are stored: `jsonb` has no exponents, so short numbers may get
    /// longer.
    private var digits = 0
    private static let maximumDigits = 128 << 10
    /// The limit of one number. Twice the digits of a double.
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

/// Pointers of RFC 6901.
enum JSONPointer {
    /// The longest pointer in a response: names are as long as their sender likes.
    private static let maximumBytes = 1024

    /// Returns a pointer as it is sent, cut at a segment if it is too long.
    static func cut(_ pointer: String) -> String {
        guard pointer.utf8.count > maximumBytes else { return pointer }
        let head = pointer.utf8.prefix(maximumBytes + 1)
        return head.lastIndex(of: UInt8(ascii: "/")).map { String(pointer[..<$0]) } ?? ""
    }

    /// Escapes a name as a segment of a pointer.
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
