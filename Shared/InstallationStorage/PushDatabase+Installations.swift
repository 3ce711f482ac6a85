package import Storage

extension PushDatabase {
    package var installations: InstallationStore {
        InstallationStore(database: database, saves: saves)
    }
    package var identities: IdentityStore {
        IdentityStore(database: database, fieldTypes: fieldTypes)
    }
    package var fields: FieldStore { FieldStore(database: database, types: fieldTypes) }
    package var fieldIndexes: FieldIndexStore { FieldIndexStore(database: database) }
    package var testDevices: TestDeviceStore { TestDeviceStore(database: database) }
    package var hubTemplates: HubTemplateStore { HubTemplateStore(database: database) }

    private var fieldTypes: FieldTypeCache { part(FieldTypeCache.init) }
    private var saves: SaveBatcher {
        let fieldTypes = fieldTypes
        return part { SaveBatcher(database, fieldTypes, on: loop) }
    }
}
