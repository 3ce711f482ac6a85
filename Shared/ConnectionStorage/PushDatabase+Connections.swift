package import Storage

extension PushDatabase {
    package var connections: ConnectionStore {
        ConnectionStore(database: database, cache: part(MessageContentCache.init))
    }
}
