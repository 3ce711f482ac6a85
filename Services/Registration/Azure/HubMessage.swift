import AzureHub
import Gateway
import HTTPServer
import JSON
import PushCore

/// One send of Azure's, for any audience.
struct HubMessage: Equatable, Sendable {
    enum Format: String, Sendable {
        case apple, gcm, fcmv1, windows, windowsphone, template

        /// `nil` for a template: it is sent to all platforms that have it.
        var platform: Platform? {
            switch self {
            case .apple: .apns
            case .gcm, .fcmv1: .fcm
            case .windows: .wns
            case .windowsphone: .mpns
            case .template: nil
            }
        }

        /// The condition on its platform's installations; `nil`: all of them. A backend that sends
        /// both of Google's formats expects that each device gets one of them. So devices that
        /// registered as `gcm`, or as `fcm`, its later name, get `gcm`; all other devices, of any
        /// surface, get `fcmv1`.
        fileprivate var condition: JSONObject? {
            let legacy = [HubPlatform.gcm, .fcm].map { JSONValue.string($0.rawValue) }
            let platform = HubTemplate.field + ".platform"
            return switch self {
            case .gcm: [platform: ["$in": .array(legacy)]]
            case .fcmv1: [platform: ["$nin": .array(legacy)]]
            case .apple, .windows, .windowsphone, .template: nil
            }
        }
    }

    enum Content: Equatable, Sendable {
        /// A push request's `native`.
        case native(JSONObject)
        case properties(JSONObject)
    }

    let format: Format
    let content: Content
    let expiresAt: Instant?

    private static let foreign: ExactStringSet = ["adm", "baidu", "browser", "xiaomi"]

    /// Parses a message. The headers name the format; those of the push service are passed on to it.
    ///
    /// - Parameters:
    ///   - headers: The request's headers.
    ///   - body: The notification.
    ///   - contentType: The notification's content type; `nil`: the one in the headers.
    ///   - now: The time.
    /// - Throws: `AzureError` 400, 413, or 501 for a format that is not supported.
    init(
        _ headers: HTTPHeaders,
        body: [UInt8],
        contentType: String? = nil,
        now: Instant = .now()
    ) throws(AzureError) {
        guard body.count <= AzureSurface.maximumBodyBytes else {
            throw AzureError(
                status: 413,
                "a notification has at most \(AzureSurface.maximumBodyBytes) bytes"
            )
        }
        let body = HubText.utf8(body, contentType: contentType ?? headers["content-type"])
        format = try Self.format(headers, body)
        switch format {
        case .apple: content = .native(["apns": .object(try Self.apple(headers, body))])
        case .gcm: content = .native(["fcm": ["message": .object(try Self.gcm(body))]])
        case .fcmv1: content = .native(["fcm": .object(try Self.envelope(body))])
        case .windows: content = .native(["wns": .object(try Self.windows(headers, body))])
        case .windowsphone: content = .native(["mpns": .object(try Self.phone(headers, body))])
        case .template: content = .properties(try Self.properties(body))
        }
        let expiry =
            headers["servicebusnotification-apns-expiry"]
            ?? headers["servicebusnotification-apnsexpiry"]
        if format == .apple, let text = expiry {
            guard let time = HubTime.instant(text, now: now) else {
                throw AzureError(
                    "ServiceBusNotification-Apns-Expiry must be a time, such as "
                        + "2026-12-25T06:30:00Z or 12/25/2026 06:30:00"
                )
            }
            expiresAt = time
        } else {
            expiresAt = nil
        }
    }

    /// Returns the format that the header names. The Java SDK omits that header if the app sets its
    /// own: then a header of a push service decides, or an `aps` in the payload.
    private static func format(
        _ headers: HTTPHeaders,
        _ body: [UInt8]
    ) throws(AzureError) -> Format {
        guard let name = headers["servicebusnotification-format"]?.lowercased() else {
            let names = headers.map { $0.name.lowercased() }
            let apple = ["apns-", "x-apns-", "servicebusnotification-apns"]
            if names.contains(where: { name in apple.contains { name.hasPrefix($0) } }) {
                return .apple
            }
            if names.contains(where: { $0.hasPrefix("x-wns-") }) { return .windows }
            if names.contains("x-windowsphone-target") || names.contains("x-notificationclass") {
                return .windowsphone
            }
            guard (try? object(body))?["aps"] == nil else { return .apple }
            throw AzureError("the header ServiceBusNotification-Format is missing")
        }
        guard !foreign.contains(name) else {
            throw .notSupported("A notification in the format \(name)")
        }
        guard let format = Format(rawValue: name) else {
            throw AzureError("unknown ServiceBusNotification-Format \"\(name.prefix(60))\"")
        }
        return format
    }

    private static func object(_ body: [UInt8]) throws(AzureError) -> JSONObject {
        let value: JSONValue
        do throws(JSONError) {
            value = try JSONValue.parse(
                body,
                maximumDepth: BodyLimits.depth,
                maximumValues: BodyLimits.valuesOfSmall
            )
        } catch {
            throw AzureError("the notification is not JSON: \(error.description)")
        }
        guard let object = value.object else {
            throw AzureError("the notification must be a JSON object")
        }
        return object
    }

    private static func text(_ body: [UInt8]) throws(AzureError) -> String {
        guard let text = String(validating: body, as: UTF8.self), !text.isEmpty,
            !text.utf8.contains(0)
        else {
            throw AzureError(
                "the notification must be text in UTF-8, or in the charset of its content type, "
                    + "ISO-8859-1; not empty"
            )
        }
        return text
    }

    /// Returns the content for APNs. Each device gets its own `apns-id`, the same on every attempt:
    /// an id that all devices share would not identify a notification.
    private static func apple(
        _ headers: HTTPHeaders,
        _ body: [UInt8]
    ) throws(AzureError) -> JSONObject {
        var apns = passedOn(headers) { $0.hasPrefix("apns-") && $0 != "apns-id" }
        // .NET's own name for the priority.
        if apns["apns-priority"] == nil, let priority = headers["x-apns-priority"] {
            apns["apns-priority"] = .string(priority)
        }
        return ["headers": .object(apns), "payload": .object(try object(body))]
    }

    private static func gcm(_ body: [UInt8]) throws(AzureError) -> JSONObject {
        let legacy = try object(body)
        do throws(GCMMessage.Problem) {
            return try GCMMessage.message(from: legacy)
        } catch {
            throw AzureError("the notification's \(error.description)")
        }
    }

    private static func envelope(_ body: [UInt8]) throws(AzureError) -> JSONObject {
        let envelope = try object(body)
        guard let message = envelope["message"]?.object, envelope.count == 1 else {
            throw AzureError("a notification for FCM v1 is an object of message, and nothing else")
        }
        for key in ["token", "topic", "condition", "fid", "name"] where message[key] != nil {
            throw AzureError("message.\(key) must not be set: the send selects the audience")
        }
        return envelope
    }

    private static func windows(
        _ headers: HTTPHeaders,
        _ body: [UInt8]
    ) throws(AzureError) -> JSONObject {
        let text = try text(body)
        guard let type = headers["x-wns-type"]?.lowercased() ?? WindowsPayload.type(of: text) else {
            throw AzureError("the header X-WNS-Type is missing")
        }
        let ours: Set = ["x-wns-type", "x-wns-match"]
        return [
            "type": .string(type),
            "headers": .object(
                passedOn(headers) { $0.hasPrefix("x-wns-") && !ours.contains($0) }
            ),
            "body": .string(text),
        ]
    }

    private static func phone(
        _ headers: HTTPHeaders,
        _ body: [UInt8]
    ) throws(AzureError) -> JSONObject {
        [
            "headers": .object(
                passedOn(headers) {
                    $0 == "x-windowsphone-target" || $0 == "x-notificationclass"
                }
            ),
            "body": .string(try text(body)),
        ]
    }

    private static func properties(_ body: [UInt8]) throws(AzureError) -> JSONObject {
        let properties = try object(body)
        for (name, value) in properties where value.string == nil {
            throw AzureError("the property \(name.prefix(60)) must be a string")
        }
        return properties
    }

    private static func passedOn(
        _ headers: HTTPHeaders,
        _ isWanted: (String) -> Bool
    ) -> JSONObject {
        var result = JSONObject()
        for field in headers where isWanted(field.name.lowercased()) {
            result[field.name.lowercased()] = .string(field.value)
        }
        return result
    }
}

/// The audience of a send.
enum HubAudience: Equatable, Sendable {
    /// Devices of the app by a tag expression; `nil`: all of them.
    case tags(String?)
    case tokens([String])
    /// Object ids.
    case installations([String])
}

extension HubMessage {
    /// A push request, and the source that identifies its event beside the notification's id.
    struct Request: Equatable, Sendable {
        var source: String
        var object: JSONObject
    }

    /// The prefix of all sources of this surface.
    static let source = "carillon/azure"

    /// Returns the push requests of a send: one for a message of one platform; for a template one
    /// for each name.
    ///
    /// - Parameters:
    ///   - audience: The audience. For a template, each push selects from it the devices that have
    ///     the name.
    ///   - time: The time of the send; `nil`: at once.
    ///   - names: The template names of the app's devices.
    /// - Returns: At least one request.
    func requests(
        to audience: HubAudience,
        at time: Instant?,
        templates names: [String]
    ) -> [Request] {
        var object: JSONObject = [:]
        if let time { object["push_time"] = .string(time.iso8601) }
        if let expiresAt { object["expiration_time"] = .string(expiresAt.iso8601) }
        switch audience {
        case .tags(let expression): object["tags"] = expression.map(JSONValue.string)
        case .tokens(let tokens):
            let platform = format.platform?.rawValue ?? ""
            object["tokens"] = .array(
                tokens.map { ["platform": .string(platform), "token": .string($0)] }
            )
        case .installations(let ids):
            object["installations"] = .array(ids.map(JSONValue.string))
        }
        switch content {
        case .native(let native):
            object["native"] = .object(native)
            if case .tokens = audience {
            } else if let platform = format.platform {
                object["platforms"] = [.string(platform.rawValue)]
                object["where"] = format.condition.map(JSONValue.object)
            }
            return [Request(source: "\(Self.source)/\(format.rawValue)", object: object)]
        case .properties(let properties):
            // A send that selects no device is stored all the same, as clients read its ledger.
            if names.isEmpty {
                object.removeValue(forKey: "tags")
                object["installations"] = []
            }
            return (names.isEmpty ? ["none"] : names).map { name in
                var object = object
                object["template"] = [
                    "name": .string(name), "properties": .object(properties),
                ]
                return Request(source: "\(Self.source)/template/\(name)", object: object)
            }
        }
    }
}
