import JSON
import PushCore

/// The push for stored content: the content's id, and a text that may be sent in the clear. Its
/// messages are those that the tutorial's apps expect, in each platform's own format.
struct SecurePush: Equatable, Sendable {
    let id: String
    let identity: String
    /// A tag expression that narrows the audience.
    var tag: String?
    /// The text that goes through the providers in the clear.
    var visibleText: String?
    /// The expiry of the content, and so of the push.
    let expiresAt: Instant
    /// The only devices that can open the content; `nil`: all devices of the identity.
    var installations: [String]?

    /// The push request; the event and the app are added with its record.
    var request: JSONObject {
        var request: JSONObject = ["identities": [.string(identity)]]
        if let tag { request["tags"] = .string(tag) }
        if let installations {
            request["installations"] = .array(installations.map(JSONValue.string))
        }
        request["native"] = [
            "apns": .object(apns), "fcm": .object(fcm), "wns": .object(wns), "mpns": .object(mpns),
        ]
        request["expiration_time"] = .string(expiresAt.iso8601)
        return request
    }

    /// A text is sent as a mutable alert: an extension of the app may fetch the content and show it instead.
    private var apns: JSONObject {
        guard let visibleText else {
            return [
                "headers": ["apns-push-type": "background", "apns-priority": "5"],
                "payload": ["aps": ["content-available": 1], "secureId": .string(id)],
            ]
        }
        return [
            "headers": ["apns-push-type": "alert", "apns-priority": "10"],
            "payload": [
                "aps": [
                    "alert": .string(visibleText), "mutable-content": 1, "content-available": 1,
                ],
                "secureId": .string(id),
            ],
        ]
    }

    /// Only data: the app shows the text if it cannot fetch the content.
    private var fcm: JSONObject {
        var data: JSONObject = ["secureId": .string(id)]
        if let visibleText { data["visibleText"] = .string(visibleText) }
        return ["message": ["data": .object(data), "android": ["priority": "HIGH"]]]
    }

    private var wns: JSONObject {
        guard let visibleText else { return ["type": "wns/raw", "body": .string(id)] }
        let toast =
            #"<toast launch="secureId=\#(id)"><visual><binding template="ToastGeneric"><text>"#
            + Self.xml(visibleText) + "</text></binding></visual></toast>"
        return ["type": "wns/toast", "body": .string(toast)]
    }

    private var mpns: JSONObject {
        guard let visibleText else { return ["body": .string(id)] }
        let toast =
            #"<?xml version="1.0" encoding="utf-8"?><wp:Notification xmlns:wp="WPNotification">"#
            + "<wp:Toast><wp:Text2>" + Self.xml(visibleText)
            + "</wp:Text2><wp:Param>?secureId=\(id)</wp:Param></wp:Toast></wp:Notification>"
        return ["headers": ["x-windowsphone-target": "toast"], "body": .string(toast)]
    }

    /// Returns a text for an XML element: escaped, or as CDATA if escaping makes it much longer, since MPNS
    /// accepts 3 KiB in all.
    static func xml(_ text: String) -> String {
        let (escaped, marked) = (Self.escaped(text), Self.marked(text))
        let isMuchLonger = escaped.utf8.count > 2 * text.utf8.count
        // In CDATA, a carriage return is parsed as a line feed.
        let mayBeMarked = !text.utf8.contains(UInt8(ascii: "\r"))
        return isMuchLonger && mayBeMarked && marked.utf8.count < escaped.utf8.count
            ? marked : escaped
    }

    private static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\r": result += "&#13;"
            default: result.unicodeScalars.append(shown(scalar))
            }
        }
        return result
    }

    /// Wraps a text in CDATA. Compares scalars, as `]` or `>` with a combining mark is another
    /// `Character`.
    private static func marked(_ text: String) -> String {
        var result = "<![CDATA["
        var brackets = 0
        for scalar in text.unicodeScalars {
            if scalar == ">", brackets >= 2 { result += "]]><![CDATA[" }
            brackets = scalar == "]" ? brackets + 1 : 0
            result.unicodeScalars.append(shown(scalar))
        }
        return result + "]]>"
    }

    /// Replaces U+FFFE and U+FFFF, which XML does not allow.
    private static func shown(_ scalar: Unicode.Scalar) -> Unicode.Scalar {
        scalar.value == 0xFFFE || scalar.value == 0xFFFF ? "\u{FFFD}" : scalar
    }

    /// Returns what is wrong with a visible text; `nil` if it is valid. No platform shows control characters,
    /// and XML does not allow them.
    static func problem(ofVisible text: String) -> String? {
        let isShown = text.unicodeScalars.allSatisfy { scalar in
            scalar.value >= 0x20 || scalar == "\t" || scalar == "\n" || scalar == "\r"
        }
        return isShown ? nil : "visibleText must not hold control characters"
    }
}
