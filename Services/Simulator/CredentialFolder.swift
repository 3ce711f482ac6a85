import Cryptography
import Glibc
import JSON
import ServiceKit
import Settings

/// The error of a file or folder that the simulator needs and cannot use.
struct CredentialFolderError: Error, CustomStringConvertible {
    let description: String
}

/// The credentials that the simulator accepts from its start, as files for its users. Files of an earlier
/// start are used again, so that a restart does not lock out the services that have them. Private files have
/// mode 0600; each is written whole or not at all.
struct CredentialFolder {
    let authority: CertificateAuthority
    let apnsKey: APNsKey
    let fcmAccount: FCMAccount
    let wnsClient: WNSClient
    private let folder: String
    private let serviceAccount: JSONObject

    init(_ configuration: SimulatorConfiguration, now: Int64) throws {
        folder = configuration.credentialsFolder
        try Self.makeFolder(folder)
        authority = try Self.authority(configuration, now: now)
        apnsKey = try Self.apnsKey(folder)
        (fcmAccount, serviceAccount) = try Self.account(folder)
        wnsClient = try Self.client(folder)
    }

    /// Writes the files whose content is known only once the ports are.
    ///
    /// - Throws: `CredentialFolderError` naming the file.
    func write(tokenURI: String, ports: JSONObject) throws {
        var account = serviceAccount
        account["token_uri"] = .string(tokenURI)
        try Self.write(account.text + "\n", to: folder + "/service-account.json", isPrivate: true)
        try Self.write(ports.text + "\n", to: folder + "/ports.json", isPrivate: false)
    }

    // MARK: Each credential: the stored one, else a new one

    private static func authority(
        _ configuration: SimulatorConfiguration,
        now: Int64
    ) throws -> CertificateAuthority {
        let keyFile = configuration.credentialsFolder + "/ca-key.pem"
        if let certificate = readTextFile(configuration.authorityFile),
            let key = readTextFile(keyFile),
            let summary = try? checkCertificatePair(
                certificatePEM: certificate,
                privateKeyPEM: key
            ),
            summary.notAfter > now + 7 * 86_400,
            let authority = try? CertificateAuthority(
                certificatePEM: certificate,
                privateKeyPEM: key
            )
        {
            return authority
        }
        let authority = try CertificateAuthority.make(commonName: "Carillon simulator")
        try write(try authority.privateKeyPEM(), to: keyFile, isPrivate: true)
        try write(authority.certificatePEM, to: configuration.authorityFile, isPrivate: false)
        return authority
    }

    private static func apnsKey(_ folder: String) throws -> APNsKey {
        let (keyFile, file) = (folder + "/apns.p8", folder + "/apns.json")
        if let pem = readTextFile(keyFile), let key = try? SigningKey(pem: pem), key.isP256,
            let object = readObject(file), let keyID = object["keyId"]?.string,
            let teamID = object["teamId"]?.string
        {
            return APNsKey(keyID: keyID, teamID: teamID, verifyingKey: key.verifyingKey)
        }
        let key = try SigningKey.generateP256()
        let (keyID, teamID) = (identifier("SIM"), identifier("TEAM"))
        try write(try key.privateKeyPEM(), to: keyFile, isPrivate: true)
        let description: JSONObject = ["keyId": .string(keyID), "teamId": .string(teamID)]
        try write(description.text + "\n", to: file, isPrivate: false)
        return APNsKey(keyID: keyID, teamID: teamID, verifyingKey: key.verifyingKey)
    }

    private static func account(_ folder: String) throws -> (FCMAccount, JSONObject) {
        if let object = readObject(folder + "/service-account.json"),
            let key = object["private_key"]?.string.flatMap({ try? SigningKey(pem: $0) }),
            let project = object["project_id"]?.string, let email = object["client_email"]?.string
        {
            return (
                FCMAccount(projectID: project, clientEmail: email, verifyingKey: key.verifyingKey),
                object
            )
        }
        let key = try SigningKey.generateRSA(bits: 2048)
        let project = "carillon-simulator"
        let email = "pusher@\(project).iam.gserviceaccount.com"
        let certificates = "https://www.googleapis.com"
        let object: JSONObject = [
            "type": "service_account", "project_id": .string(project),
            "private_key_id": .string(Hex.encode(randomBytes(20))),
            "private_key": .string(try key.privateKeyPEM()),
            "client_email": .string(email),
            "client_id": "100000000000000000000",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth", "token_uri": "",
            "auth_provider_x509_cert_url": .string(certificates + "/oauth2/v1/certs"),
            "client_x509_cert_url": .string(certificates + "/robot/v1/metadata/x509/" + email),
            "universe_domain": "googleapis.com",
        ]
        return (
            FCMAccount(projectID: project, clientEmail: email, verifyingKey: key.verifyingKey),
            object
        )
    }

    private static func client(_ folder: String) throws -> WNSClient {
        let file = folder + "/wns.json"
        if let object = readObject(file), let id = object["clientId"]?.string,
            let secret = object["clientSecret"]?.string, let tenant = object["tenant"]?.string
        {
            return WNSClient(clientID: id, clientSecret: secret, tenant: tenant)
        }
        let client = WNSClient(
            clientID: uuid(),
            clientSecret: Base64.encodeURL(randomBytes(30)),
            tenant: uuid()
        )
        let object: JSONObject = [
            "clientId": .string(client.clientID), "clientSecret": .string(client.clientSecret),
            "tenant": client.tenant.map { .string($0) } ?? .null,
        ]
        try write(object.text + "\n", to: file, isPrivate: true)
        return client
    }

    /// Returns an identifier of ten capitals and digits, like Apple's.
    private static func identifier(_ prefix: String) -> String {
        let alphabet = Array("ABCDEFGHJKLMNPQRSTUVWXYZ23456789")
        let rest = randomBytes(10 - prefix.count).map { alphabet[Int($0) % alphabet.count] }
        return prefix + String(rest)
    }

    // MARK: Files

    private static func makeFolder(_ path: String) throws {
        var made = path.hasPrefix("/") ? "" : "."
        for part in path.split(separator: "/") {
            made += "/" + part
            guard unsafe mkdir(made, 0o755) == 0 || errno == EEXIST else {
                throw CredentialFolderError(description: "the folder \(made) cannot be made")
            }
        }
    }

    private static func readObject(_ path: String) -> JSONObject? {
        guard let text = readTextFile(path) else { return nil }
        return (try? JSONValue.parse(text))?.object
    }

    /// Writes a draft beside the file and renames it, so that a reader never gets a part of it.
    private static func write(_ text: String, to path: String, isPrivate: Bool) throws {
        let failure = CredentialFolderError(description: "the file \(path) cannot be written")
        let draft = "\(path).\(getpid()).draft"
        unsafe unlink(draft)
        let mode: mode_t = isPrivate ? 0o600 : 0o644
        let descriptor = unsafe open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)
        guard descriptor >= 0 else { throw failure }
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = unsafe bytes.withUnsafeBytes {
                unsafe Glibc.write(descriptor, $0.baseAddress, $0.count)
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else {
                close(descriptor)
                unsafe unlink(draft)
                throw failure
            }
            bytes = bytes.dropFirst(count)
        }
        guard close(descriptor) == 0, unsafe rename(draft, path) == 0 else {
            unsafe unlink(draft)
            throw failure
        }
    }
}

/// Returns a random UUID (version 4) in lower case.
func uuid() -> String {
    var bytes = randomBytes(16)
    bytes[6] = bytes[6] & 0x0F | 0x40
    bytes[8] = bytes[8] & 0x3F | 0x80
    let text = Array(Hex.encode(bytes))
    let groups = [0..<8, 8..<12, 12..<16, 16..<20, 20..<32]
    return groups.map { String(text[$0]) }.joined(separator: "-")
}
