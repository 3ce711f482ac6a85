import Cryptography
import JSON
import PushCore
import PushProviders
import ServiceKit
import Storage

extension Command {
    static let credentialsSetAPNs = Command(
        "credentials set apns <app>",
        "Set APNs credentials for one topic: a key or a certificate",
        options: [
            .value("--topic", "<bundle id>", "the APNs topic"),
            .value("--key-file", "<p8>", "the signing key, with --key-id and --team-id"),
            .value("--key-id", "<id>", "10 characters"),
            .value("--team-id", "<id>", "10 characters"),
            .value("--certificate-file", "<pem>", "instead of a key, with --private-key-file"),
            .value("--private-key-file", "<pem>", "the certificate's key"),
            .flag("--default", "the topic of devices and pushes that name none; alone: marks it"),
            json,
        ]
    ) { arguments, context in
        let topic = try arguments.required("--topic")
        let keyOptions = [
            "--key-file", "--key-id", "--team-id", "--certificate-file", "--private-key-file",
        ]
        if arguments.has("--default"), !keyOptions.contains(where: arguments.has) {
            return try await makeDefault(topic, arguments, context)
        }
        let credential = try checked([
            "topic": "--topic", "key": "--key-file", "keyID": "--key-id", "teamID": "--team-id",
            "certificate": "--certificate-file", "privateKey": "--private-key-file",
        ]) {
            if let path = arguments.value("--certificate-file") {
                for option in ["--key-file", "--key-id", "--team-id"] where arguments.has(option) {
                    throw ArgumentsError("\(option) does not go with --certificate-file")
                }
                return try APNsCredential(
                    validatingCertificate: try context.file(path, "--certificate-file"),
                    privateKey: try context.file(
                        try arguments.required("--private-key-file"),
                        "--private-key-file"
                    ),
                    topic: topic
                )
            }
            guard let path = arguments.value("--key-file") else {
                throw ArgumentsError("--key-file or --certificate-file is missing")
            }
            guard !arguments.has("--private-key-file") else {
                throw ArgumentsError("--private-key-file does not go with --key-file")
            }
            return try APNsCredential(
                validatingKey: try context.file(path, "--key-file"),
                keyID: try arguments.required("--key-id"),
                teamID: try arguments.required("--team-id"),
                topic: topic
            )
        }
        let kept = (credential.secret, credential.summary)
        return try await keep(.apns, name: topic, kept, arguments, context)
    }

    static let credentialsSetFCM = Command(
        "credentials set fcm <app>",
        "Set the FCM service account of an app",
        options: [
            .value("--service-account-file", "<json>", "as Firebase's console gives it"), json,
        ]
    ) { arguments, context in
        let option = "--service-account-file"
        let text = try context.file(try arguments.required(option), option)
        guard let account = (try? JSONValue.parse(text))?.object else {
            throw ArgumentsError("\(option) names a file that does not hold a JSON object")
        }
        let hosts = try context.providers().fcmTokenHosts
        let credential: FCMCredential
        do throws(CredentialError) {
            credential = try FCMCredential(validating: account, tokenHosts: hosts)
        } catch {
            throw ArgumentsError("\(option): \(error.field) \(error.problem)")
        }
        let kept = (credential.secret, credential.summary)
        return try await keep(.fcm, kept, arguments, context)
    }

    static let credentialsSetWNS = Command(
        "credentials set wns <app>",
        "Set the WNS credentials of an app",
        options: [
            .value("--client-id", "<id>", "the app's id at Entra ID, or ms-app://<package SID>"),
            .value("--client-secret-file", "<file>", "its secret, one line"),
            .value("--tenant", "<id>", "the Entra ID tenant; without it, the Live login"), json,
        ]
    ) { arguments, context in
        let secretFile = try arguments.required("--client-secret-file")
        let credential = try checked([
            "clientID": "--client-id", "clientSecret": "--client-secret-file",
            "tenant": "--tenant",
        ]) {
            try WNSCredential(
                validatingClientID: try arguments.required("--client-id"),
                clientSecret: try context.line(ofFile: secretFile, "--client-secret-file"),
                tenant: arguments.value("--tenant")
            )
        }
        let kept = (credential.secret, credential.summary)
        return try await keep(.wns, kept, arguments, context)
    }

    static let credentialsSetMPNS = Command(
        "credentials set mpns <app>",
        "Set the MPNS client certificate of an app",
        options: [
            .value("--certificate-file", "<pem>", "the client certificate"),
            .value("--private-key-file", "<pem>", "its key"), json,
        ]
    ) { arguments, context in
        let files = ["--certificate-file", "--private-key-file"]
        let paths = try files.map { try arguments.required($0) }
        let credential = try checked([
            "certificate": "--certificate-file", "privateKey": "--private-key-file",
        ]) {
            try MPNSCredential(
                validatingCertificate: try context.file(paths[0], files[0]),
                privateKey: try context.file(paths[1], files[1])
            )
        }
        let kept = (credential.secret, credential.summary)
        return try await keep(.mpns, kept, arguments, context)
    }

    /// Makes a credential. An error names the option that the invalid field came with.
    private static func checked<Credential>(
        _ options: [String: String],
        _ make: () throws -> Credential
    ) throws -> Credential {
        do {
            return try make()
        } catch let error as CredentialError {
            throw ArgumentsError("\(options[error.field] ?? error.field) \(error.problem)")
        }
    }

    private static func keep(
        _ platform: Platform,
        name: String = "",
        _ credential: (secret: JSONObject, summary: JSONObject),
        _ arguments: Arguments,
        _ context: CommandContext
    ) async throws -> Int32 {
        let keys = try context.masterKeys()
        let (database, app) = try await context.existingApp(arguments)
        let kept = try await database.credentials.set(
            StoredCredential(
                sealing: credential.secret,
                summary: credential.summary,
                app: app,
                platform: platform,
                name: name,
                isDefault: arguments.has("--default"),
                by: keys
            )
        )
        try await context.audit("credentials set", app, ["\(platform.rawValue) \(name)"])
        let label = name.isEmpty ? "" : " for \(name)"
        let summary = JSONValue.object(credential.summary).plain
        let note =
            platform == .apns && !kept.isDefault
            ? "\ndevices that name no topic stay with the default; see credentials list" : ""
        return arguments.answer(
            shownCredential(kept),
            "\(platform.rawValue): stored a credential of \(app)\(label) \(summary)\(note)"
        )
    }

    private static func makeDefault(
        _ topic: String,
        _ arguments: Arguments,
        _ context: CommandContext
    ) async throws -> Int32 {
        let (database, app) = try await context.existingApp(arguments)
        guard
            try await database.credentials.makeDefault(app: app, platform: .apns, name: topic)
        else {
            throw CommandFailure("\(app) has no apns credential for \(topic)")
        }
        try await context.audit("credentials set", app, ["apns \(topic)", "default"])
        let kept = try await database.credentials.list(app: app).first {
            $0.platform == .apns && $0.name == topic
        }
        return arguments.answer(
            kept.map(shownCredential) ?? [:],
            "apns: \(topic) is the default topic of \(app)"
        )
    }
}

extension StoredCredential {
    /// The summary that may be shown, for people.
    var summaryText: String { JSONValue.object(summary).plain }
}
