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
