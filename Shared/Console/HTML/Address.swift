/// An address within the console: segments of a path, and a query, both escaped.
///
/// It always begins with `/console`, so it never leads to another host.
struct Address: Sendable, Equatable {
    let text: String

    /// Makes an address of the console.
    ///
    /// - Parameters:
    ///   - segments: The path below `/console`, segment by segment, unescaped.
    ///   - query: Names and values, unescaped; those without a value are omitted.
    init(_ segments: String..., query: KeyValuePairs<String, String?> = [:]) {
        self.init(segments, query: query.map { ($0.key, $0.value) })
    }

    init(_ segments: [String], query: [(String, String?)] = []) {
        var text = "/console"
        for segment in segments { text += "/" + Self.escaped(segment) }
        let items = query.compactMap { name, value in
            value.map { Self.escaped(name) + "=" + Self.escaped($0) }
        }
        if !items.isEmpty { text += "?" + items.joined(separator: "&") }
        self.text = text
    }

    /// Makes the address of a request's path, as the `next` of the sign-in page; `nil` if it is no
    /// address of the console.
    init?(within path: String) {
        let isPlain = path.utf8.allSatisfy { byte in
            (0x21..<0x7F).contains(byte) && byte != UInt8(ascii: "\\") && byte != UInt8(ascii: "\"")
        }
        guard isPlain, path == "/console" || path.hasPrefix("/console/"),
            !path.contains("//"), !Self.leavesFolder(path)
        else { return nil }
        text = path
    }

    /// Whether a browser would go up in the path: by `..`, or by the same with escaped dots.
    private static func leavesFolder(_ path: String) -> Bool {
        path.prefix { $0 != "?" && $0 != "#" }.split(separator: "/").contains { segment in
            segment.lowercased().replacing("%2e", with: ".") == ".."
        }
    }

    /// Whether the address is of the pages of an app.
    func isOf(app: String) -> Bool {
        let home = Address([app]).text
        guard text.hasPrefix(home) else { return false }
        let rest = text.dropFirst(home.count)
        return rest.isEmpty || rest.hasPrefix("/") || rest.hasPrefix("?")
    }

    /// Escapes all characters but the unreserved ones of RFC 3986.
    private static func escaped(_ part: String) -> String {
        var text = ""
        for byte in part.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
                UInt8(ascii: "_"), UInt8(ascii: "~"):
                text.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                text += "%" + hexDigits(byte)
            }
        }
        return text
    }

    private static func hexDigits(_ byte: UInt8) -> String {
        let digits = String(byte, radix: 16, uppercase: true)
        return byte < 16 ? "0" + digits : digits
    }
}
