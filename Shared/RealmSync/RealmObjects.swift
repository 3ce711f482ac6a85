internal import JSON

/// The objects of one decoded changeset. Each is made when it is asked for, so a caller can yield
/// between them.
package struct RealmObjects: Sendable {
    package let tables: [RealmTable]
    private let kinds: ExactStringMap<RealmTable.Kind>
    private let index: ChangeIndex
    private let names: InternedNames
    private let bytes: ArraySlice<UInt8>
    private let ids: RealmIDs
    private var tree: ObjectTree

    init(
        _ index: ChangeIndex,
        _ names: InternedNames,
        _ bytes: ArraySlice<UInt8>,
        _ ids: RealmIDs
    ) {
        (self.index, self.names, self.bytes, self.ids) = (index, names, bytes, ids)
        tree = ObjectTree(changesetBytes: bytes.count)
        tables = unsafe bytes.withUnsafeBytes { source in
            let cursor = unsafe ByteCursor(source)
            return names.tables.map {
                RealmTable(name: names.text($0.name, cursor), kind: $0.kind)
            }
        }
        kinds = tables.reduce(into: [:]) { $0[$1.name] = $1.kind }
    }

    package var count: Int { index.count }

    /// Returns the kind of a class that this transaction declares. A file's first transactions declare
    /// its classes, and later ones do not repeat them.
    package func kind(of className: String) -> RealmTable.Kind? { kinds[className] }

    /// Makes an object: a microsecond for each of its fields.
    ///
    /// - Parameter index: 0..<`count`.
    /// - Returns: `nil` if the transaction erased the object again.
    package mutating func object(at index: Int) -> RealmObject? {
        guard let start = self.index.start(of: index) else { return nil }
        let bytes = bytes
        return unsafe bytes.withUnsafeBytes { source in
            var reader = unsafe InstructionReader(source, ids)
            (reader.names, reader.isChecked) = (names, true)
            guard let object = try? reader.created(at: start) else { return nil }
            let fault = apply(changesOf: index, to: object, &reader)
            return make(object, fault: fault, reader)
        }
    }

    /// Applies the changes of an object to an empty tree. Those of a refused one are not applied.
    ///
    /// - Returns: Why the object is refused.
    private mutating func apply(
        changesOf index: Int,
        to object: ObjectReference,
        _ reader: inout InstructionReader
    ) -> RealmObjectFault? {
        tree.clear()
        switch object.key.kind {
        case .null: return .nullKey
        case .global: return .globalKey
        case .string where reader.isLong(object.key): return .longKey
        case .integer, .string, .objectID, .uuid: break
        }
        do throws(RealmObjectFault) {
            try self.index.forEachChange(of: index) { position throws(RealmObjectFault) in
                reader.cursor.position = position
                // It was read before, so it is a change.
                guard case .change(_, let change)? = try? reader.next(isUsed: true) else { return }
                try tree.apply(change, at: reader.path, reader.names)
            }
            return nil
        } catch {
            tree.clear()
            return error
        }
    }

    private func make(
        _ object: ObjectReference,
        fault: RealmObjectFault?,
        _ reader: InstructionReader
    ) -> RealmObject {
        let className = reader.text(object.table)
        let key = reader.isLong(object.key) ? .null : object.key.resolved(reader.text)
        var document: JSONObject = [:]
        if let id = ids.text(key, of: className) { document["_id"] = .string(id) }
        var fault: (RealmObjectFault, pointer: String)? = fault.map { ($0, "") }
        let root = tree.nodes[Int(ObjectTree.root)]
        for (place, name) in root.names.enumerated() where name >= 0 {
            let name = reader.text(name)
            let value = value(root.children[place], reader, &fault) { "/" + Self.escaped(name) }
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
        _ reader: InstructionReader,
        _ fault: inout (RealmObjectFault, pointer: String)?,
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
                elements.append(value(child, reader, &fault) { pointer() + "/\(index)" })
            }
            return .array(elements)
        case .object:
            var members: JSONObject = [:]
            for (place, name) in node.names.enumerated() where name >= 0 {
                let name = reader.text(name)
                members[name] = value(node.children[place], reader, &fault) {
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
