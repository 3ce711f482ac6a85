package import Storage

extension PushDatabase {
    package var sealed: SealedStore { SealedStore(database: database) }
    package var erasures: ErasureStore { ErasureStore(database: database) }
    package var maintenance: Maintenance { Maintenance(database: database) }
}
