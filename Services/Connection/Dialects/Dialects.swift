/// The dialects of this service, by their subprotocols.
enum Dialects {
    /// The subprotocols, the preferred first.
    private static let known: [(name: String, dialect: any Dialect)] = [
        (NativeDialect.subprotocol, NativeDialect()),
        ("lc.protobuf2.3", LeanCloudProtobuf("lc.protobuf2.3", answersLogin: true)),
        ("lc.protobuf2.1", LeanCloudProtobuf("lc.protobuf2.1", answersLogin: true)),
        ("lc.protobuf.2", LeanCloudProtobuf("lc.protobuf.2", answersLogin: false)),
        ("lc.protobuf.1", LeanCloudProtobuf("lc.protobuf.1", answersLogin: false)),
        (
            "lc.proto2base64.3",
            LeanCloudProtobuf("lc.proto2base64.3", answersLogin: true, isBase64: true)
        ), ("lc.json.3", LeanCloudJSON("lc.json.3")), ("lc.json.2", LeanCloudJSON("lc.json.2")),
    ]
    /// The dialect of clients that name no subprotocol.
    static let unnamed: any Dialect = LeanCloudJSON("lc.json.1")

    static let names = known.map(\.name) + [unnamed.name, "events"]

    /// Chooses the first known one of the offered subprotocols.
    ///
    /// - Parameters:
    ///   - offered: Those in the handshake.
    ///   - query: The one that some clients name in the query instead.
    /// - Returns: The dialect with the subprotocol to echo; `nil` if only unknown ones are offered.
    static func choose(
        _ offered: [String],
        query: String?
    ) -> (dialect: any Dialect, subprotocol: String?)? {
        for name in offered {
            if let found = known.first(where: { $0.name == name }) { return (found.dialect, name) }
        }
        guard offered.isEmpty else { return nil }
        guard let query, !query.isEmpty else { return (unnamed, nil) }
        return known.first { $0.name == query }.map { ($0.dialect, nil) }
    }
}
