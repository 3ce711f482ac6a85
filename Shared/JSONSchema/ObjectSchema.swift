package import JSON

/// The type of a property's column in a view, by its schema.
package enum SchemaColumn: Sendable, Equatable {
    case text, integer, number, boolean, time, json
}

/// An error in a schema, or a place where it accepts less than the previous one. Safe to show.
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

/// Why an object is refused. Safe to show: it contains only names of the object's properties.
package struct SchemaViolation: Equatable, Sendable {
    /// RFC 6901, into the object.
    package let pointer: String
    package let reason: String

    package init(pointer: String, _ reason: String) {
        self.pointer = pointer
        self.reason = reason
    }
}

/// A schema of any value, without the requirements for a type's schema.
package final class ValueSchema: Sendable {
    let tree: SchemaTree

    package init(_ document: JSONValue) throws(SchemaError) {
        tree = try SchemaCompiler.compile(document)
    }

    package func check(_ value: JSONValue, by checker: SchemaChecker) -> SchemaViolation? {
        checker.check(value, tree, from: tree.root)
    }
}

/// The schema of a type's objects: a part of JSON Schema 2020-12, or Atlas' form of it.
///
/// Authority: decides whether an object is valid, where it is not, how a view shows it, and whether
/// a newer schema accepts everything that this one accepted. Pure and immutable; checks also need a
/// `SchemaChecker`. An unsupported keyword is refused by name, never ignored. Numbers are equal by
/// value, strings by their bytes.
package final class ObjectSchema: Sendable {
    package static let maximumBytes = 64 << 10

    /// The schema as it was declared.
    package let document: JSONValue
    /// The top-level properties, in order.
    package let properties: [(name: String, column: SchemaColumn)]
    let tree: SchemaTree

    /// Parses the schema of a type.
    ///
    /// - Parameters:
    ///   - bytes: JSON.
    ///   - name: The type's.
    ///   - isStored: Whether it was declared before: its cost is limited at checks, and is not an
    ///     error here.
    /// - Throws: `SchemaError` with the place and the reason.
    package init(
        _ bytes: [UInt8],
        type name: String,
        isStored: Bool = false
    ) throws(SchemaError) {
        guard bytes.count <= Self.maximumBytes else {
            throw SchemaError(pointer: "", "larger than \(Self.maximumBytes >> 10) KiB")
        }
        do throws(JSONError) {
            document = try JSONValue.parse(bytes)
        } catch {
            throw SchemaError(pointer: "", "not JSON: \(error.description)")
        }
        tree = try SchemaCompiler.compile(document, isStored: isStored)
        try Self.checkTop(document, type: name)
        let declared = tree.nodes[tree.root].object?.properties ?? []
        properties = declared.compactMap { [tree] property in
            property.node.map { (property.name, tree.column(of: $0)) }
        }
    }

    private static func checkTop(_ document: JSONValue, type name: String) throws(SchemaError) {
        if let type = document["bsonType"] {
            guard type.string == "object" else {
                throw SchemaError(pointer: "/bsonType", "must be \"object\"")
            }
            guard document["title"]?.string.isSame(as: name) == true else {
                throw SchemaError(pointer: "/title", "must be the name of the type")
            }
        } else {
            guard document["type"]?.string == "object" else {
                throw SchemaError(pointer: "/type", "must be \"object\"")
            }
        }
        guard document["properties"]?["_id"] != nil else {
            throw SchemaError(pointer: "/properties/_id", "is required")
        }
        guard document["required"]?.array?.contains("_id") == true else {
            throw SchemaError(pointer: "/required", "must have _id")
        }
    }

    /// Returns the first violation of the object; `nil` if it is valid.
    package func check(_ object: JSONValue, by checker: SchemaChecker) -> SchemaViolation? {
        checker.check(object, tree, from: tree.root)
    }

    /// Returns the place, in the newer schema, where it accepts less than this one; `nil` if it
    /// provably accepts everything that this one accepts, and shows it in the same way, except for
    /// integers that become numbers.
    ///
    /// A new property that is not required does not count as narrowing, though an earlier object
    /// might have had another value of that name.
    package func narrowing(in newer: ObjectSchema) -> SchemaError? {
        SchemaEvolution.narrowing(from: self, to: newer)
    }
}
