package import JSON

/// The type of a field in LeanCloud and Parse: a field has the same type in all objects of a class.
///
/// The first value that an app saves in a field decides its type permanently. The fields that
/// Carillon reads have a fixed type. `null` and a deletion have no type and are always accepted.
package enum FieldType: Sendable, Equatable {
    case string, number, boolean, array, object, date, geoPoint, bytes, file
    case pointer(className: String)

    /// `nil` for `null`, which has no type.
    package init?(of value: JSONValue) {
        switch value {
        case .null: return nil
        case .bool: self = .boolean
        case .integer, .double, .number: self = .number
        case .string: self = .string
        case .array: self = .array
        case .object(let object):
            switch object["__type"]?.string {
            case "Date": self = .date
            case "GeoPoint": self = .geoPoint
            case "Bytes": self = .bytes
            case "File": self = .file
            case "Pointer", "Object":
                guard let name = object["className"]?.string else {
                    self = .object
                    return
                }
                self = .pointer(className: name)
            default: self = .object
            }
        }
    }

    /// The form in which a type is stored and listed.
    package var text: String {
        if case .pointer(let className) = self { return "\(name)<\(className)>" }
        return name
    }

    /// - Parameter text: The form that `text` returns.
    package init?(text: String) {
        if let known = Self.plain.first(where: { $0.name == text }) {
            self = known
            return
        }
        guard text.hasPrefix("Pointer<"), text.hasSuffix(">") else { return nil }
        self = .pointer(className: String(text.dropFirst("Pointer<".count).dropLast()))
    }

    /// The name that LeanCloud and Parse use.
    package var name: String {
        switch self {
        case .string: "String"
        case .number: "Number"
        case .boolean: "Boolean"
        case .array: "Array"
        case .object: "Object"
        case .date: "Date"
        case .geoPoint: "GeoPoint"
        case .bytes: "Bytes"
        case .file: "File"
        case .pointer: "Pointer"
        }
    }

    private static let plain: [FieldType] = [
        .string, .number, .boolean, .array, .object, .date, .geoPoint, .bytes, .file,
    ]

    /// Compares class names by bytes: canonically equivalent names are different.
    package static func == (left: FieldType, right: FieldType) -> Bool {
        if case .pointer(let mine) = left, case .pointer(let others) = right {
            return mine.utf8.elementsEqual(others.utf8)
        }
        return left.name == right.name
    }
}

extension FieldType {
    /// Returns the type of a field that Carillon reads; `nil` for a field of the app.
    package static func fixed(_ field: String, of className: String) -> FieldType? {
        if field == "ACL" { return .object }
        return className == "_Installation" ? ofInstallations[field] : ofIdentities[field]
    }

    private static let ofInstallations: [String: FieldType] = [
        "apnsEnvironment": .string, "apnsTopic": .string, "badge": .number, "channels": .array,
        "deviceProfile": .string, "deviceToken": .string, "deviceType": .string,
        "identity": .string, "installationId": .string, "pushType": .string,
        "registrationId": .string, "subscriptionUri": .string, "timeZone": .string,
        "valid": .boolean, "vendor": .string,
    ]

    private static let ofIdentities: [String: FieldType] = [
        "email": .string, "mobilePhoneNumber": .string, "username": .string,
    ]
}

/// A field that a save sets, and the type of its value.
package struct FieldUse: Sendable, Equatable {
    package let name: String
    package let type: FieldType

    package init(name: String, type: FieldType) {
        self.name = name
        self.type = type
    }
}

/// A save that gives a field a different type than it has. Names the field, never contains a value.
package struct FieldMismatch: Error, Sendable, Equatable, CustomStringConvertible {
    package let className: String
    package let field: String
    package let expected: FieldType
    package let found: FieldType

    package init(className: String, field: String, expected: FieldType, found: FieldType) {
        self.className = className
        self.field = field
        self.expected = expected
        self.found = found
    }

    package static let code = 111

    /// The error in LeanCloud's words.
    package var description: String {
        "Invalid value type for field '\(field)', expect type is \(Self.shown(expected)), "
            + "but it is \(Self.shown(found))."
    }

    private static func shown(_ type: FieldType) -> String {
        guard case .pointer(let className) = type else { return "{:type \"\(type.name)\"}" }
        return "{:type \"Pointer\", :className \"\(className)\"}"
    }

    /// The error in Parse's words.
    package var descriptionOfParse: String {
        "schema mismatch for \(className).\(field); "
            + "expected \(expected.text) but got \(found.text)"
    }
}
