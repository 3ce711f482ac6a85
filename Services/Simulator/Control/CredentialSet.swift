import Cryptography
import JSON

/// Credentials to accept in addition to the existing ones: the body of `PUT /credentials`.
struct CredentialSet: Sendable {
    var apns: [APNsKey] = []
    var fcm: [FCMAccount] = []
    var wns: [WNSClient] = []

    init() {}

    init(_ value: JSONValue) throws(ControlError) {
        guard let object = value.object else {
            throw ControlError("credentials", "are not an object")
        }
        for key in object.keys where !["apns", "fcm", "wns"].contains(key) {
            throw ControlError(key, "is not known")
        }
        apns = try Self.entries(object["apns"], "apns") { reader, place throws(ControlError) in
            let key = try Self.key(reader, place)
            guard key.algorithm == .es256 else {
                throw ControlError("\(place).publicKeyPem", "is not an EC P-256 key")
            }
            return APNsKey(
                keyID: try reader.required("keyId"),
                teamID: try reader.required("teamId"),
                verifyingKey: key,
                environment: try reader.text("environment")
            )
        }
        fcm = try Self.entries(object["fcm"], "fcm") { reader, place throws(ControlError) in
            let key = try Self.key(reader, place)
            guard key.algorithm == .rs256 else {
                throw ControlError("\(place).publicKeyPem", "is not an RSA key")
            }
            return FCMAccount(
                projectID: try reader.required("projectId"),
                clientEmail: try reader.required("clientEmail"),
                verifyingKey: key
            )
        }
        wns = try Self.entries(object["wns"], "wns") { reader, _ throws(ControlError) in
            WNSClient(
                clientID: try reader.required("clientId"),
                clientSecret: try reader.required("clientSecret"),
                tenant: try reader.text("tenant")
            )
        }
    }

    private static func entries<Entry>(
        _ value: JSONValue?,
        _ name: String,
        _ read: (FieldReader, String) throws(ControlError) -> Entry
    ) throws(ControlError) -> [Entry] {
        guard let value, !value.isNull else { return [] }
        guard let list = value.array, list.count <= 1000 else {
            throw ControlError(name, "is not a list, or one of more than 1000")
        }
        var entries: [Entry] = []
        for (index, value) in list.enumerated() {
            let place = "\(name)[\(index)]"
            guard let object = value.object else { throw ControlError(place, "is not an object") }
            entries.append(try read(FieldReader(object, at: place), place))
        }
        return entries
    }

    private static func key(
        _ reader: FieldReader,
        _ place: String
    ) throws(ControlError) -> VerifyingKey {
        do {
            return try VerifyingKey(pem: try reader.required("publicKeyPem"))
        } catch let error as ControlError {
            throw error
        } catch {
            throw ControlError("\(place).publicKeyPem", "is not a usable public key")
        }
    }
}
