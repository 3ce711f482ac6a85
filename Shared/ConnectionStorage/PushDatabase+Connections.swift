package import Storage

extension PushDatabase {
    package var connections: ConnectionStore {
        ConnectionStore(
            database: database,
            indexed: singles,
            cache: part(MessageContentCache.init)
        )
    }
}
