import Cryptography
import EventLoop
import Foundation
import JSON
import PushCore
import PushProviders
import Storage
import StorageAdmin

/// Apps and what else is set up in the database without a service.
extension Stack {
    package struct App: Sendable {
        package let id: String
        package let appKey: String
        package let masterKey: String
        package let bundleID = "com.example.bells"

        package var clientHeaders: [String: String] { ["X-LC-Id": id, "X-LC-Key": appKey] }
        package var masterHeaders: [String: String] {
            ["X-LC-Id": id, "X-LC-Key": "\(masterKey),master"]
        }
    }

    /// Makes a new app with credentials for all three providers. The tests of `carillon` see that
    /// its commands do the same; here, four programs for each app would take a third of a second.
    package func makeApp(named name: String? = nil) async throws -> App {
        let app = App(
            id: name ?? TestEnvironment.unique("app-"),
            appKey: Base64.encodeURL(randomBytes(32)),
            masterKey: Base64.encodeURL(randomBytes(32))
        )
        let account = try JSONValue.parse(file("service-account.json")).object ?? [:]
        let fcm = try FCMCredential(
            validating: account,
            tokenHosts: environment["FCM_TOKEN_HOSTS"].map { [$0] } ?? []
        )
        let fields = try JSONValue.parse(file("wns.json"))
        let wns = try WNSCredential(
            validatingClientID: fields["clientId"]?.string ?? "",
            clientSecret: fields["clientSecret"]?.string ?? "",
            tenant: fields["tenant"]?.string
        )
        let apns = try apnsKey(topic: app.bundleID)
        try await withStores { stores, keys in
            try await stores.apps.create(
                StoredApp(id: app.id, appKey: app.appKey, masterKey: app.masterKey, by: keys)
            )
            try await Self.keep(
                .apns,
                app.bundleID,
                apns.secret,
                apns.summary,
                app.id,
                stores,
                keys
            )
            try await Self.keep(.fcm, "", fcm.secret, fcm.summary, app.id, stores, keys)
            try await Self.keep(.wns, "", wns.secret, wns.summary, app.id, stores, keys)
        }
        return app
    }

    /// Gives an app the simulator's APNs key for a topic.
    package func setAPNsKey(of app: String, topic: String) async throws {
        let key = try apnsKey(topic: topic)
        try await withStores { stores, keys in
            try await Self.keep(.apns, topic, key.secret, key.summary, app, stores, keys)
        }
    }

    private static func keep(
        _ platform: Platform,
        _ name: String,
        _ secret: JSONObject,
        _ summary: JSONObject,
        _ app: String,
        _ stores: PushDatabase,
        _ keys: KeyRing
    ) async throws {
        try await stores.credentials.set(
            StoredCredential(
                sealing: secret,
                summary: summary,
                app: app,
                platform: platform,
                name: name,
                isDefault: false,
                by: keys
            )
        )
    }

    private func apnsKey(topic: String) throws -> APNsCredential {
        let fields = try JSONValue.parse(file("apns.json"))
        return try APNsCredential(
            validatingKey: String(decoding: file("apns.p8"), as: UTF8.self),
            keyID: fields["keyId"]?.string ?? "",
            teamID: fields["teamId"]?.string ?? "",
            topic: topic
        )
    }

    /// Returns a file of the simulator's credentials.
    private func file(_ name: String) throws -> [UInt8] {
        guard let data = FileManager.default.contents(atPath: "\(folder)/credentials/\(name)")
        else { throw TestFailure("the simulator wrote no \(name)") }
        return [UInt8](data)
    }

    /// Runs the body with the stores of the stack's database and its services' key ring.
    @discardableResult
    func withStores<Value: Sendable>(
        _ body: @escaping @Sendable (PushDatabase, KeyRing) async throws -> Value
    ) async throws -> Value {
        let keys = try KeyRing(environment["CARILLON_MASTER_KEYS"] ?? "")
        let loop = try EventLoop(name: "stores")
        let stores = PushDatabase(
            DatabaseConfiguration(uri: database.url, connections: 1),
            keys: keys,
            on: loop
        )
        let result = await Task { try await body(stores, keys) }.result
        await stores.close()
        await loop.stop()
        return try result.get()
    }
}
