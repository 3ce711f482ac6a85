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

/// A schema of any value, without what is asked of a type's.
package final class ValueSchema: Sendable {
    let tree: SchemaTree

    package init(_ document: JSONValue) throws(SchemaError) {
        tree = try SchemaCompiler.compile(document)
    }

    package func check(_ value: JSONValue, by checker: SchemaChecker) -> SchemaViolation? {
        checker.check(value, tree, from: tree.root)
    }
}

/// The schema of a type's objects: JSON Schema 2020-12, of which it takes a part, or Atlas' form of it.
///
/// Authority: says whether an object is one of the type, where it is not, what a view shows of it,
/// and whether a newer schema takes all that this one took. Pure and immutable; what checks need
/// beside it is a `SchemaChecker`. A keyword that it does not take is refused by name, never passed
/// over. Numbers are equal by their worth, texts by their bytes.
package final class ObjectSchema: Sendable {
    package static let maximumBytes = 64 << 10

    /// As it was declared.
    package let document: JSONValue
    /// Those of the top, in their order.
    package let properties: [(name: String, column: SchemaColumn)]
    let tree: SchemaTree

    /// Reads the schema of a type.
    ///
    /// - Parameters:
    ///   - bytes: JSON.
    ///   - name: The type's.
    ///   - isStored: It was declared before: what it costs is bounded where it is applied, and is no
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

    /// The first fault of the object; `nil` where it is one of the type.
    package func check(_ object: JSONValue, by checker: SchemaChecker) -> SchemaViolation? {
        checker.check(object, tree, from: tree.root)
    }

    /// Where the newer schema takes less than this one, into the newer; `nil` where it provably
    /// takes all that this one takes, and shows it as this one does, but for integers that become
    /// numbers.
    ///
    /// A new property that is not required counts as no narrowing, though an object of before might
    /// have had another value of that name.
    package func narrowing(in newer: ObjectSchema) -> SchemaError? {
        SchemaEvolution.narrowing(from: self, to: newer)
    }
}
