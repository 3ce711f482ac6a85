import JSON
import PushCore

/// The push that rings for content: its id, and what may be shown in the clear. The messages are those
/// that the tutorial's apps wait for, each platform's own.
struct SecureRing: Equatable, Sendable {
    let id: String
    let identity: String
    /// Narrows who is rung.
    var tag: String?
    /// What goes through the providers for everybody to read.
    var visibleText: String?
    /// The push ends with the content.
    let expiresAt: Instant
    /// The devices that alone can open it; `nil`: all of the identity's.
    var installations: [String]?

    /// What a push request asks for; the event and the app are added with its record.
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

    /// Beside a text an extension of the app may fetch, and show the content in its place.
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

    /// Data alone: the app shows the text where it cannot fetch.
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

    /// A text as it stands in an element: escaped, or, where that is much longer, as it is between
    /// marks, since MPNS takes 3 KiB in all.
    static func xml(_ text: String) -> String {
        let (escaped, marked) = (Self.escaped(text), Self.marked(text))
        let isMuchLonger = escaped.utf8.count > 2 * text.utf8.count
        // Between marks a return would come out as a line's end.
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

    /// By scalars: to a `String` what is joined by a mark is another character.
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

    /// XML has no place for the last two of the first plane.
    private static func shown(_ scalar: Unicode.Scalar) -> Unicode.Scalar {
        scalar.value == 0xFFFE || scalar.value == 0xFFFF ? "\u{FFFD}" : scalar
    }

    /// What is wrong with a text that is to be shown; `nil` if nothing is. No platform shows controls,
    /// and XML has no place for them.
    static func problem(ofVisible text: String) -> String? {
        let isShown = text.unicodeScalars.allSatisfy { scalar in
            scalar.value >= 0x20 || scalar == "\t" || scalar == "\n" || scalar == "\r"
        }
        return isShown ? nil : "visibleText must not hold control characters"
    }
}
