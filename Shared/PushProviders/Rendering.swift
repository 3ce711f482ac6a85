internal import JSON
package import PushCore

/// The reason why a push cannot be rendered for a provider. `description` becomes the outcome's reason.
package enum RenderingError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The request has no content for this platform.
    case noContent(Platform)
    case invalid(field: String, problem: String)
    case tooLarge(bytes: Int, limit: Int)
    /// The template that the device has stored has expired.
    case expiredTemplate

    package var description: String {
        switch self {
        case .noContent(let platform): "the push holds nothing for \(platform.rawValue)"
        case .invalid(let field, let problem): "\(field) \(problem)"
        case .tooLarge(let bytes, let limit):
            "\(FailureCount.tooLarge): \(bytes) bytes of at most \(limit)"
        case .expiredTemplate: LocalFailure.templateExpired.rawValue
        }
    }
}

extension PayloadTemplate {
    /// Renders a push once for all devices with the same platform and language.
    ///
    /// - Parameters:
    ///   - request: The push; `native` for the platform takes precedence over `data`.
    ///   - pushID: The push's id. It is the collapse id if the push has no other, so that a repeat
    ///     overwrites (promise 5).
    ///   - platform: The platform.
    ///   - locale: The variant of the texts that `LocaleVariants` chose; `nil` for the plain texts.
    /// - Returns: The payload that all these devices share.
    /// - Throws: `RenderingError` if it cannot be sent to any of these devices.
    package static func render(
        _ request: PushRequest,
        pushID: String,
        for platform: Platform,
        locale: String? = nil
    ) throws(RenderingError) -> PayloadTemplate {
        var request = request
        var marks: PlaceholderMarks?
        if let (marked, found) = try PlaceholderMarks.mark(request, for: platform) {
            request.data = marked
            marks = found
        }
        var draft =
            switch platform {
            case .apns: try APNsRequest.render(request, pushID: pushID, locale: locale)
            case .fcm: try FCMRequest.render(request, pushID: pushID, locale: locale)
            case .wns: try WNSRequest.render(request, pushID: pushID, locale: locale)
            case .mpns: try MPNSRequest.render(request, pushID: pushID, locale: locale)
            case .connection: try ConnectionRequest.render(request, pushID: pushID, locale: locale)
            }
        if request.repeatsOverwrite { draft.payload.repeatOverwrites = true }
        return try PayloadTemplate(draft, marks)
    }
}

extension RenderedPayload {
    func header(_ name: String) -> String? { headers.first { $0.name == name }?.value }
}

/// LeanCloud's `data` for one platform: the keys of its sub-object override the top-level keys.
struct PlatformData {
    private(set) var fields: JSONObject

    private static let subObjects = [
        "ios", "android", "wp", "fcm", "mi", "hms", "mz", "vivo", "oppo",
    ]

    /// - Parameters:
    ///   - data: The push's `data`, unchanged.
    ///   - subObjects: The names of the platform's sub-objects; later ones override earlier ones. A
    ///     `null` in them removes the top-level key.
    ///   - locale: The variant of the texts. The other variants are removed.
    ///   - platform: The devices' platform.
    /// - Throws: `noContent` if `data` only has texts in other languages.
    init(
        _ data: JSONObject,
        over subObjects: [String],
        locale: String?,
        for platform: Platform
    ) throws(RenderingError) {
        fields = JSONObject()
        for (key, value) in data where !Self.subObjects.contains(key) && !value.isNull {
            fields[key] = value
        }
        for name in subObjects {
            guard let object = data[name]?.object else { continue }
            for (key, value) in object {
                if value.isNull {
                    fields.removeValue(forKey: key)
                } else {
                    fields[key] = value
                }
            }
        }
        let wasEmpty = fields.isEmpty
        chooseLanguage(locale, of: LocaleVariants(data))
        guard wasEmpty || !fields.isEmpty else { throw .noContent(platform) }
    }

    /// Replaces the plain texts by those of the language. If several variants match, the closest is
    /// used, for each text separately.
    private mutating func chooseLanguage(_ locale: String?, of languages: LocaleVariants) {
        var chosen: [String: (locale: String, value: JSONValue)] = [:]
        for (key, value) in fields {
            guard let variant = languages.variant(key) else { continue }
            fields.removeValue(forKey: key)
            guard let locale, LocaleVariants.begins(locale, with: variant.locale),
                variant.locale.utf8.count >= chosen[variant.base]?.locale.utf8.count ?? 0
            else { continue }
            chosen[variant.base] = (variant.locale, value)
        }
        for base in ["alert", "title"] {
            if let text = chosen[base]?.value { fields[base] = text }
        }
    }

    mutating func take(_ key: String) -> JSONValue? { fields.removeValue(forKey: key) }

    mutating func takeText(_ key: String) throws(RenderingError) -> String? {
        guard let value = take(key) else { return nil }
        guard let text = value.string else {
            throw .invalid(field: "data.\(key)", problem: "must be a string")
        }
        return text
    }

    /// Removes and returns a flag: `1` and `true` are true.
    mutating func takeFlag(_ key: String) -> Bool {
        guard let value = take(key) else { return false }
        return value.bool ?? (value.integer == 1)
    }

    mutating func drop(_ keys: [String]) {
        for key in keys { fields.removeValue(forKey: key) }
    }
}

/// Reads the `headers` of a `native` payload: strings under names that the platform accepts.
func nativeHeaders(
    _ object: JSONObject?,
    field: String,
    allowing isAllowed: (String) -> Bool
) throws(RenderingError) -> [RenderedPayload.Header] {
    var headers: [RenderedPayload.Header] = []
    for (name, value) in object ?? JSONObject() {
        let path = "\(field).\(name.prefix(60))"
        let name = name.lowercased()
        guard isAllowed(name) else {
            throw .invalid(field: path, problem: "is not a header that may be set")
        }
        guard !headers.contains(where: { $0.name == name }) else {
            throw .invalid(field: path, problem: "is there twice")
        }
        let text = value.string ?? value.integer.map(String.init)
        guard let text, text.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else {
            throw .invalid(field: path, problem: "must be a line of text")
        }
        headers.append(RenderedPayload.Header(name, text))
    }
    return headers
}
