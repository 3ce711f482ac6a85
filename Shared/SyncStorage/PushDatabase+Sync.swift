package import Storage

extension PushDatabase {
    package var syncPools: SyncPoolStore { SyncPoolStore(database: database) }
    package var syncDatasets: SyncDatasetStore { SyncDatasetStore(database: database) }
    package var syncDevices: SyncDeviceStore { SyncDeviceStore(database: database) }
    package var syncWindows: SyncWindowStore { SyncWindowStore(database: database) }
    package var syncKeeping: SyncRetention { SyncRetention(database: database) }
    package var syncState: SyncStateStore { SyncStateStore(database: database) }
}
