package import Storage

extension PushDatabase {
    package var logins: LoginStore { LoginStore(database: database) }
    package var jwks: JWKSStore { JWKSStore(database: database) }
}
