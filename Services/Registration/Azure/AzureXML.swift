import HTTPServer

/// The XML of responses.
enum AzureXML {
    static func response(_ body: String, status: Int) -> HTTPServerResponse {
        HTTPServerResponse(
            status: status,
            headers: ["Content-Type": "application/xml; charset=utf-8"],
            body: Array(body.utf8)
        )
    }

    static func element(_ name: String, _ text: String) -> String {
        "<\(name)>\(escaped(text))</\(name)>"
    }

    /// Replaces the characters that XML 1.0 cannot contain, escaped or not.
    static func representable(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            result.unicodeScalars.append(isRepresentable(scalar) ? scalar : "\u{FFFD}")
        }
        return result
    }

    private static func isRepresentable(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar {
        case "\t", "\n", "\r": true
        default: scalar.value >= 0x20 && scalar.value != 0xFFFE && scalar.value != 0xFFFF
        }
    }

    static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "\t", "\n", "\r": result += "&#\(scalar.value);"
            case _ where !isRepresentable(scalar): result += "\u{FFFD}"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
