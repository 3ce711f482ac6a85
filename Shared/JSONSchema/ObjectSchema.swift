package import JSON

/// What a schema says of a value of one property, as a view shows it.
package enum SchemaColumn: Sendable, Equatable {
    case text, integer, number, boolean, time, json
}

/// What is wrong with a schema, or where it takes less than the one before. Safe to show.
package struct SchemaError: Error, Equatable, Sendable, CustomStringConvertible {
    /// RFC 6901, into the schema.
    package let pointer: String
    package let reason: String

    package init(pointer: String, _ reason: String) {
        self.pointer = pointer
        self.reason = reason
    }

    package var description: String { pointer.isEmpty ? reason : "\(pointer): \(reason)" }
}

/// Why an object is refused. Safe to show: it holds nothing of the object but names of its properties.
package struct SchemaViolation: Equatable, Sendable {
    /// RFC 6901, into the object.
    package let pointer: String
    package let reason: String

    package init(pointer: String, _ reason: String) {
        self.pointer = pointer
        self.reason = reason
    }
}

/// What checks need beside a schema: confined to its owner.
package final class SchemaChecker {
    package init() {}
}

package final class ObjectSchema: Sendable {
    package static let maximumBytes = 64 << 10

    package let document: JSONValue
    package let properties: [(name: String, column: SchemaColumn)]

    package init(_ bytes: [UInt8], type name: String) throws(SchemaError) {
        do throws(JSONError) {
            document = try JSONValue.parse(bytes)
        } catch {
            throw SchemaError(pointer: "", "not JSON: \(error.description)")
        }
        properties = []
    }

    package func check(_ object: JSONValue, by checker: SchemaChecker) -> SchemaViolation? { nil }

    package func narrowing(in newer: ObjectSchema) -> SchemaError? { nil }
}
