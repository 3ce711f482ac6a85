package import Storage

extension PushDatabase {
    package var securePayloads: SecurePayloadStore { SecurePayloadStore(database: database) }
    package var secureReaders: SecureReaderStore { SecureReaderStore(database: database) }
    package var identitySecrets: IdentitySecretStore { IdentitySecretStore(database: database) }
}
