import JSON
import PushCore
import PushProviders
import Storage

/// The form of one kind of credential: its fields, and the credential that they make. The checks are
/// those of `carillon credentials set`.
///
/// A secret is read from the posted form and nowhere else: no page contains it again.
struct CredentialForm {
    enum Kind: String, CaseIterable {
        case apns
        case apnsCertificate = "apns-certificate"
        case fcm, wns, mpns

        init?(of credential: StoredCredential) {
            switch credential.platform {
            case .apns:
                let isKey = credential.summary["method"]?.string != "certificate"
                self = isKey ? .apns : .apnsCertificate
            case .fcm: self = .fcm
            case .wns: self = .wns
            case .mpns: self = .mpns
            case .connection: return nil
            }
        }

        var platform: Platform {
            switch self {
            case .apns, .apnsCertificate: .apns
            case .fcm: .fcm
            case .wns: .wns
            case .mpns: .mpns
            }
        }

        func title(_ t: Words) -> String {
            switch self {
            case .apns: t("APNs key")
            case .apnsCertificate: t("APNs certificate")
            case .fcm: t("FCM service account")
            case .wns: t("WNS secret")
            case .mpns: t("MPNS certificate")
            }
        }
    }

    /// A credential that passed the checks, in the form that is stored.
    struct Checked {
        /// The topic of APNs; empty for other providers.
        let name: String
        let secret: JSONObject
        let summary: JSONObject
    }

    /// An invalid field: its name in the form, and a sentence without its value.
    struct Problem: Error, Equatable {
        let field: String
        let sentence: String
    }

    let kind: Kind
    /// The fields that may be shown again.
    private var shown: [String: String] = [:]
    private var secrets: [String: String] = [:]
    var isDefault = false

    /// An empty form, or that of a stored credential without its secret.
    init(_ kind: Kind, replacing credential: StoredCredential? = nil) {
        self.kind = kind
        for name in Self.shownFields {
            shown[name] = credential?.summary[name]?.string
        }
        isDefault = credential?.isDefault ?? false
    }

    init(_ kind: Kind, posted form: Form) {
        self.kind = kind
        for name in Self.shownFields {
            let text = form.text(name)
            // A key that was pasted into the wrong field is not shown again, either.
            shown[name] = text.contains("-----BEGIN") ? "" : text
        }
        for name in Self.secretFields {
            // Browsers send CRLF for the line ends of a text area.
            secrets[name] = form.text(name).replacing("\r\n", with: "\n")
        }
        isDefault = form["default"] == "on"
    }

    private static let shownFields = ["topic", "keyID", "teamID", "clientID", "tenant"]
    /// A PEM file of a certificate often has the key, too, so it counts as a secret.
    private static let secretFields = [
        "key", "certificate", "privateKey", "account", "clientSecret",
    ]

    /// The name under which the credential is stored.
    var name: String { kind.platform == .apns ? shown["topic"] ?? "" : "" }

    // MARK: Checks

    /// - Throws: `Problem` for the first field that is invalid.
    func checked(fcmTokenHosts: [String], _ t: Words) throws(Problem) -> Checked {
        do throws(CredentialError) {
            switch kind {
            case .apns:
                let credential = try APNsCredential(
                    validatingKey: secret("key"),
                    keyID: text("keyID"),
                    teamID: text("teamID"),
                    topic: text("topic")
                )
                return Checked(
                    name: credential.topic,
                    secret: credential.secret,
                    summary: credential.summary
                )
            case .apnsCertificate:
                let credential = try APNsCredential(
                    validatingCertificate: secret("certificate"),
                    privateKey: secret("privateKey"),
                    topic: text("topic")
                )
                return Checked(
                    name: credential.topic,
                    secret: credential.secret,
                    summary: credential.summary
                )
            case .fcm:
                guard let account = (try? JSONValue.parse(secret("account")))?.object else {
                    throw CredentialError("account", "is not a JSON object")
                }
                let credential = try FCMCredential(validating: account, tokenHosts: fcmTokenHosts)
                return Checked(name: "", secret: credential.secret, summary: credential.summary)
            case .wns:
                let credential = try WNSCredential(
                    validatingClientID: text("clientID"),
                    clientSecret: secret("clientSecret"),
                    tenant: text("tenant").isEmpty ? nil : text("tenant")
                )
                return Checked(name: "", secret: credential.secret, summary: credential.summary)
            case .mpns:
                let credential = try MPNSCredential(
                    validatingCertificate: secret("certificate"),
                    privateKey: secret("privateKey")
                )
                return Checked(name: "", secret: credential.secret, summary: credential.summary)
            }
        } catch {
            throw problem(error, t)
        }
    }

    private func text(_ name: String) -> String { shown[name] ?? "" }
    private func secret(_ name: String) -> String { secrets[name] ?? "" }

    private func problem(_ error: CredentialError, _ t: Words) -> Problem {
        let sentence: String
        switch error.field {
        case "topic": sentence = t("This is not a bundle id that the credential covers.")
        case "key":
            sentence = t("This is not Apple's .p8 file: a private key on P-256 in PEM form.")
        case "keyID", "teamID": sentence = t("This must be 10 letters and digits.")
        case "certificate", "privateKey":
            sentence = t("This is not a PEM certificate to which the private key belongs.")
        case "clientID": sentence = t("This is not an app's id.")
        case "clientSecret": sentence = t("This must be one line of printable characters.")
        case "tenant": sentence = t("This is not a tenant's id or domain.")
        case "account": sentence = t("This is not a JSON object.")
        default:
            // A member of the service account's file.
            return Problem(
                field: "account",
                sentence: t(
                    "A member of the file is missing or invalid: {field} {problem}.",
                    ["field": error.field, "problem": error.problem]
                )
            )
        }
        return Problem(field: error.field, sentence: sentence)
    }

    // MARK: Fields

    /// Draws the fields. Those with a secret are empty.
    func fields(_ problem: Problem?, _ t: Words) -> HTML {
        func field(_ name: String, _ label: String, _ hint: String = "") -> Field {
            Field(
                name,
                label,
                hint: HTML(text: hint),
                error: problem?.field == name ? problem?.sentence : nil
            )
        }
        let topic = field("topic", t("Topic"), t("The app's bundle id.")).input(text("topic"))
        let standard = field(
            "default",
            t("The default topic"),
            t("For devices and pushes that name none. The first topic is the default.")
        ).checkbox(isDefault)
        let certificate =
            field("certificate", t("Certificate"), t("In PEM form, from BEGIN to END."))
            .area("", rows: 6)
            + field("privateKey", t("Private key"), t("In PEM form, without a passphrase."))
            .area("", rows: 6)
        switch kind {
        case .apns:
            return """
                \(topic)\(field("keyID", t("Key id")).input(text("keyID")))
                \(field("teamID", t("Team id")).input(text("teamID")))
                \(field("key", t("Key"), t("The content of Apple's .p8 file.")).area("", rows: 6))
                \(standard)
                """
        case .apnsCertificate: return topic + certificate + standard
        case .fcm:
            return field(
                "account",
                t("Service account"),
                t("The content of the JSON file from Firebase's console.")
            ).area("", rows: 8)
        case .wns:
            return """
                \(field("clientID", t("Client id"), t("The app's id at Entra ID, or {example}.", [
                    "example": "ms-app://<package SID>"
                ])).input(text("clientID")))
                \(field("clientSecret", t("Client secret")).input("", type: "password"))
                \(field("tenant", t("Tenant"), t("The Entra ID tenant. Empty: the Live login."))
                    .input(text("tenant")))
                """
        case .mpns: return certificate
        }
    }
}
