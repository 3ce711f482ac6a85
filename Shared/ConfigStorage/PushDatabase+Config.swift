package import Storage

extension PushDatabase {
    package var config: ConfigStore { ConfigStore(database: database) }
    package var configAnnouncements: ConfigAnnouncementStore {
        ConfigAnnouncementStore(database: database)
    }
    package var configFetches: ConfigFetchStore { ConfigFetchStore(database: database) }
}
