internal import JSON

/// The file formats of a template's defaults, which are downloaded to be compiled into an app.
package enum DefaultsFormat: String, Sendable, CaseIterable {
    case json = "JSON"
    case plist = "PLIST"
    case xml = "XML"

    package var contentType: String {
        switch self {
        case .json: "application/json; charset=utf-8"
        case .plist: "application/x-plist; charset=utf-8"
        case .xml: "application/xml; charset=utf-8"
        }
    }

    /// Renders the values of `ConfigTemplate.defaults` as a file.
    package func render(_ defaults: [(key: String, value: String)]) -> [UInt8] {
        switch self {
        case .json:
            return JSONObject(defaults.lazy.map { ($0.key, .string($0.value)) }).bytes
        case .plist:
            var text = """
                <?xml version="1.0" encoding="UTF-8"?>
                <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" \
                "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
                <plist version="1.0">
                <dict>

                """
            for (key, value) in defaults {
                text += "<key>\(Self.escape(key))</key>\n<string>\(Self.escape(value))</string>\n"
            }
            return Array((text + "</dict>\n</plist>\n").utf8)
        case .xml:
            var text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<defaultsMap>\n"
            for (key, value) in defaults {
                text += "<entry>\n<key>\(Self.escape(key))</key>\n"
                text += "<value>\(Self.escape(value))</value>\n</entry>\n"
            }
            return Array((text + "</defaultsMap>\n").utf8)
        }
    }

    /// Escapes a string. Characters that XML cannot represent become U+FFFD. A carriage return is
    /// escaped, as it would be read as a line end.
    private static func escape(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\r": result += "&#13;"
            case "\t", "\n": result.unicodeScalars.append(scalar)
            case "\u{0}"..."\u{1F}", "\u{FFFE}", "\u{FFFF}": result += "\u{FFFD}"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
