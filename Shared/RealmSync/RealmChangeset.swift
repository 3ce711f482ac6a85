package import JSON

/// A class as a changeset declares it.
package struct RealmTable: Equatable, Sendable {
    package enum Kind: Equatable, Sendable {
        /// Its objects are not stored: there is no way back to the device.
        case twoWay
        case embedded
        case asymmetric
    }

    package let name: String
    package let kind: Kind
}

/// One transaction of a client.
package struct RealmChangeset: Sendable {
    /// The client version (`C`) that is acknowledged for it.
    package let version: Int64
    /// The server version (`S`) that the client knew.
    package let serverVersion: Int64
    /// The changeset itself, for the dead letter of one that cannot be decoded.
    package let bytes: ArraySlice<UInt8>

    package init(version: Int64, serverVersion: Int64, bytes: ArraySlice<UInt8>) {
        self.version = version
        self.serverVersion = serverVersion
        self.bytes = bytes
    }

    /// Decodes the objects that the transaction creates. Takes some microseconds for each, and at
    /// most some 12 bytes of memory for each byte.
    ///
    /// - Parameter derivedID: Returns the id that stands for a key which cannot be one: the same for
    ///   the same parts, which are `realm`, the class, `int` or `string`, and the key's text.
    /// - Returns: The objects, without those that were only changed.
    /// - Throws: `RealmChangesetFault`. Then nothing of the transaction can be stored.
    package func decode(
        derivedID: @escaping @Sendable ([String]) -> String
    ) throws(RealmChangesetFault) -> RealmObjects {
        let ids = RealmIDs(derived: derivedID)
        let result = unsafe bytes.withUnsafeBytes {
            source -> Result<ChangesetReader, RealmChangesetFault> in
            var reader = unsafe ChangesetReader(source, ids: ids)
            do throws(RealmChangesetFault) {
                try reader.read()
                return .success(reader)
            } catch {
                return .failure(error)
            }
        }
        return RealmObjects(try result.get(), ids)
    }
}

/// The texts of primary keys.
struct RealmIDs: Sendable {
    let derived: @Sendable ([String]) -> String

    /// - Returns: The id of an object with this key; `nil` if it cannot have one.
    func text(_ key: RealmKey, of className: String) -> String? {
        switch key {
        case .null, .global: nil
        case .integer(let value): derived(["realm", className, "int", String(value)])
        case .string(let text): derived(["realm", className, "string", text])
        case .objectID(let high, let low): RealmIDText.objectID(high, low)
        case .uuid(let high, let low): RealmIDText.uuid(high, low)
        }
    }
}

/// An object that a transaction created.
package struct RealmObject: Sendable {
    package let className: String
    package let key: RealmKey
    /// The object as JSON, with its `_id`, and with the client's key in `_key` if that is not an id.
    /// Absent members are not filled yet. If there is a fault, texts replace the values at fault.
    package let document: JSONObject
    package let fault: RealmObjectFault?
    /// The RFC 6901 pointer to the value at fault.
    package let pointer: String
}

/// The objects of one decoded changeset. Each is converted when it is asked for, so a caller can
/// yield between them.
package struct RealmObjects: Sendable {
    package let tables: [RealmTable]
    private let kinds: ExactStringMap<RealmTable.Kind>
    private let strings: [String]
    private let tree: ObjectTree
    private let ids: RealmIDs

    init(_ reader: ChangesetReader, _ ids: RealmIDs) {
        strings = reader.strings
        tree = reader.tree
        tables = reader.tables.map { RealmTable(name: reader.strings[Int($0.name)], kind: $0.kind) }
        kinds = tables.reduce(into: [:]) { $0[$1.name] = $1.kind }
        self.ids = ids
    }

    package var count: Int { tree.objects.count }

    /// Returns the kind of a class that this transaction declares. A file's first transactions declare
    /// its classes, and later ones do not repeat them.
    package func kind(of className: String) -> RealmTable.Kind? { kinds[className] }

    /// - Parameter index: 0..<`count`.
    /// - Returns: `nil` if the transaction erased the object again.
    package func object(at index: Int) -> RealmObject? {
        let object = tree.objects[index]
        guard !object.isErased else { return nil }
        let className = strings[Int(object.table)]
        let key = object.key.resolved(strings)
        var document: JSONObject = [:]
        if let id = ids.text(key, of: className) { document["_id"] = .string(id) }
        var fault: (RealmObjectFault, pointer: String)? = object.fault.map { ($0, "") }
        let root = tree.nodes[Int(object.root)]
        for (place, name) in root.names.enumerated() where name >= 0 {
            let name = strings[Int(name)]
            let value = value(root.children[place], fault: &fault) { "/" + Self.escaped(name) }
            // The key is the only `_id`.
            if name != "_id" { document[name] = value }
        }
        switch key {
        case .integer(let value): document["_key"] = .integer(value)
        case .string(let text): document["_key"] = .string(text)
        case .null, .objectID, .uuid, .global: break
        }
        return RealmObject(
            className: className,
            key: key,
            document: document,
            fault: fault?.0,
            pointer: fault?.pointer ?? ""
        )
    }

    /// Converts a value. The depth is that of the longest path.
    private func value(
        _ place: Int32,
        fault: inout (RealmObjectFault, pointer: String)?,
        at pointer: () -> String
    ) -> JSONValue {
        let node = tree.nodes[Int(place)]
        switch node.kind {
        case .scalar:
            if let found = node.fault, fault == nil { fault = (found, pointer()) }
            return node.value
        case .list:
            var elements: [JSONValue] = []
            elements.reserveCapacity(node.children.count)
            for (index, child) in node.children.enumerated() {
                elements.append(value(child, fault: &fault) { pointer() + "/\(index)" })
            }
            return .array(elements)
        case .object:
            var members: JSONObject = [:]
            for (place, name) in node.names.enumerated() where name >= 0 {
                let name = strings[Int(name)]
                members[name] = value(node.children[place], fault: &fault) {
                    pointer() + "/" + Self.escaped(name)
                }
            }
            return .object(members)
        }
    }

    private static func escaped(_ name: String) -> String {
        name.contains { $0 == "~" || $0 == "/" }
            ? name.split(separator: "~", omittingEmptySubsequences: false).joined(separator: "~0")
                .split(separator: "/", omittingEmptySubsequences: false).joined(separator: "~1")
            : name
    }
}
