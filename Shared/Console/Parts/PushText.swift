import JSON
import PushStorage

/// The text of a push, as people wrote it.
struct PushText {
    /// The title, else the text; nil for a silent push.
    let headline: String?
    let title: String?
    let body: String?

    init(_ request: JSONObject) {
        let data = request["data"]?.object ?? [:]
        // Variants by platform have their text one level below; the first one stands for all.
        let content = Self.content(data)
        title = content.title
        body = content.body
        headline = content.title ?? content.body
    }

    private static func content(_ data: JSONObject) -> (title: String?, body: String?) {
        switch data["alert"] {
        case .string(let body)?: return (text(data["title"]), body)
        case .object(let alert)?: return (text(alert["title"]), text(alert["body"]))
        default: break
        }
        if let title = text(data["title"]) { return (title, nil) }
        for name in platforms {
            if let variant = data[name]?.object {
                let found = content(variant)
                if found.title != nil || found.body != nil { return found }
            }
        }
        return (nil, nil)
    }

    /// The objects of `data` that hold the texts of one platform; all others are data of the app.
    private static let platforms = ["ios", "android", "wp", "fcm", "mi", "hms"]

    private static func text(_ value: JSONValue?) -> String? {
        guard let text = value?.string, !text.isEmpty else { return nil }
        return text
    }
}

extension StoredPush {
    /// The push's name on pages: its text, cut.
    func headline(_ t: Words) -> String {
        guard let text = PushText(request).headline else { return t("Silent push") }
        return text.count > 120 ? String(text.prefix(119)) + "…" : text
    }
}
