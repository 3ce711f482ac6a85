package import Storage

extension PushDatabase {
    package var ingestTypes: IngestTypeStore { IngestTypeStore(database: database) }
    package var ingestSink: IngestSinkStore { IngestSinkStore(database: database) }
    package var realmFigures: RealmFigureStore { RealmFigureStore(database: database) }
    package var ingestUpkeep: IngestMaintenance { IngestMaintenance(database: database) }
}
