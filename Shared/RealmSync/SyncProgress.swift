/// The numbers of a session. None of them falls, neither within the session nor below those that the
/// client stated; a client stops a session for good if one does.
struct SyncProgress: Equatable {
    /// `S`, the server version: the newest, and the one up to which the client has everything.
    private(set) var server: Int64
    private(set) var latestSalt: Int64
    /// `C`, the acknowledged client version; never more than the client's own last one.
    private(set) var client: Int64
    /// The server version that the client knew at `client`; at most `server`.
    private(set) var uploadedServer: Int64 = 0
    private(set) var queryVersion: Int64
    /// The origin of changesets that are sent: not the client's own file.
    let originFile: Int64

    /// - Parameters:
    ///   - stated: The client's place.
    ///   - random: Makes a salt for a client that has none yet.
    init(_ stated: ClientProgress, random: () -> UInt64) {
        server = max(stated.downloadServer, stated.latestServer)
        latestSalt = stated.latestSalt > 0 ? stated.latestSalt : Int64(random() >> 2) + 1
        client = stated.downloadClient
        queryVersion = stated.queryVersion
        originFile = stated.fileIdent == 1 ? 2 : 1
    }

    /// Adds a server version. They begin below 2^62, so they cannot overflow.
    mutating func advance() { server += 1 }

    /// Adds a server version for a query.
    ///
    /// - Returns: False if it is not newer than the active one.
    mutating func advance(query version: Int64) -> Bool {
        guard version > queryVersion else { return false }
        queryVersion = version
        server += 1
        return true
    }

    /// Adds a server version that acknowledges everything up to a transaction.
    mutating func acknowledge(_ version: Int64, serverVersion: Int64) {
        client = max(client, version)
        uploadedServer = max(uploadedServer, min(serverVersion, server))
        server += 1
    }
}
