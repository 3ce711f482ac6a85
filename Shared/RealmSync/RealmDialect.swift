/// The version of the protocol that a connection speaks.
package struct RealmDialect: Equatable, Sendable {
    /// From the first with asymmetric classes to the last that was released.
    package static let versions = 6...14

    package let version: Int
    /// The client's own spelling, which the response must repeat.
    package let subprotocol: String

    /// Chooses the highest usable subprotocol of `Sec-WebSocket-Protocol`; `nil` if none is usable.
    /// Then the response is 400, never 101: a client crashes without a subprotocol in its response.
    ///
    /// - Parameter offered: The names in the order of the header. Newer clients write `#` before the
    ///   version, older ones `/`.
    package init?(offered: [String]) {
        var best: (version: Int, name: String)?
        for name in offered {
            guard let version = Self.version(name), version > best?.version ?? 0 else { continue }
            best = (version, name)
        }
        guard let best else { return nil }
        (version, subprotocol) = best
    }

    private static func version(_ name: String) -> Int? {
        let bytes = Array(name.utf8)
        let prefix = Array("com.mongodb.realm-query-sync".utf8)
        guard bytes.starts(with: prefix) else { return nil }
        let rest = bytes.dropFirst(prefix.count)
        guard let separator = rest.first,
            separator == UInt8(ascii: "#") || separator == UInt8(ascii: "/")
        else { return nil }
        let digits = rest.dropFirst()
        return versions.first { String($0).utf8.elementsEqual(digits) }
    }

    /// Whether the client understands messages for its log.
    var hasLogMessages: Bool { version >= 10 }
}
