import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import SyncStorage

/// Devices and their subscriptions.
extension CognitoSurface {
    /// Registers a device, with an installation of the app that is found or created by its token.
    func registerDevice(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let owner = try request.owner(caller)
        guard let platform = SyncPlatform(rawValue: try request.required("Platform")) else {
            throw CognitoError.invalid("Platform must be APNS, APNS_SANDBOX, GCM or ADM")
        }
        let device = try SyncDevice(
            owner: owner,
            platform: platform,
            token: try request.required("Token")
        )
        try await database.syncDevices.requirePushing(pool: owner.pool, app: owner.app)
        let saved = try await database.installations.save(
            app: owner.app,
            keys: try device.keys()
        ) { existing in
            let now = Instant.now()
            var installation =
                existing
                ?? Installation(app: owner.app, objectID: newObjectID(at: now), at: now)
            try device.put(into: &installation, now: now)
            return installation
        }
        try await database.syncDevices.register(
            device.id,
            of: owner,
            platform: platform.rawValue,
            installation: saved.installation.objectID
        )
        return .json(["DeviceId": .string(device.id)])
    }

    func subscribe(_ request: CognitoRequest, _ caller: Caller) async throws -> HTTPServerResponse {
        try await database.syncDevices.subscribe(
            try request.device(),
            to: try request.dataset(caller)
        )
        return .json([:])
    }

    func unsubscribe(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try await database.syncDevices.unsubscribe(
            try request.device(),
            from: try request.dataset(caller)
        )
        return .json([:])
    }
}

/// The platforms, by the names of Cognito's clients.
enum SyncPlatform: String, Sendable {
    case apns = "APNS"
    case apnsSandbox = "APNS_SANDBOX"
    case gcm = "GCM"
    /// Stored, but not sent to.
    case adm = "ADM"
}

/// A device as it registers itself for an identity.
struct SyncDevice: Sendable {
    /// The same for the same pool, identity, platform and token.
    let id: String
    private let fields: JSONObject
    private let identity: String

    private static let maximumTokenBytes = 4096
    /// The fields with the provider and the address of a device.
    private static let routeFields: ExactStringSet = [
        "deviceType", "deviceToken", "registrationId", "pushType", "apnsEnvironment",
    ]

    init(owner: SyncIdentity, platform: SyncPlatform, token: String) throws(CognitoError) {
        guard (1...Self.maximumTokenBytes).contains(token.utf8.count), !token.utf8.contains(0)
        else { throw .invalid("Token must be 1 to \(Self.maximumTokenBytes) bytes") }
        identity = owner.identity
        var token = token
        switch platform {
        case .apns, .apnsSandbox:
            token = DeviceToken.canonical(token, for: .apns)
            if let problem = DeviceToken.problem(token, for: .apns) {
                throw .invalid("Token: \(problem)")
            }
            fields = [
                "deviceType": "ios", "deviceToken": .string(token),
                "apnsEnvironment": platform == .apns ? "production" : "sandbox",
            ]
        case .gcm:
            if let problem = DeviceToken.problem(token, for: .fcm) {
                throw .invalid("Token: \(problem)")
            }
            fields = ["deviceType": "android", "registrationId": .string(token)]
        case .adm:
            // Carillon has no provider for this platform, so the installation is found by a name
            // derived from the token.
            let name = Hex.encode(sha256(Array(token.utf8)))
            fields = [
                "deviceType": "adm", "deviceToken": .string(token),
                "installationId": .string("adm-" + name),
            ]
        }
        id = PushIdentity.uuidText(
            sha256(
                Array(
                    ["sync device", owner.pool, identity, platform.rawValue, token]
                        .joined(separator: "\0").utf8
                )
            )
        )
    }

    /// Returns the keys that find the installation with this token.
    func keys() throws(InstallationError) -> Installation.Keys { try Installation.Keys(fields) }

    /// Writes the device into an installation; the fields of other surfaces stay.
    func put(into installation: inout Installation, now: Instant) throws(InstallationError) {
        var object = installation.object
        for field in Self.routeFields { object.removeValue(forKey: field) }
        for (name, value) in fields { object[name] = value }
        object["identity"] = .string(identity)
        if object["deviceType"]?.string == "android" {
            let vendor = object["vendor"]?.string?.lowercased() ?? ""
            if !["", "fcm", "gcm"].contains(vendor) { object.removeValue(forKey: "vendor") }
        }
        try installation.take(
            object,
            changed: Self.routeFields.union(["identity"]),
            now: now,
            isChannel: { TagName.isValid($0) || ChannelName.isValid($0) }
        )
    }
}
