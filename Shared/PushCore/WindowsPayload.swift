/// The type of a Windows payload.
package enum WindowsPayload {
    /// Returns the `X-WNS-Type` for the name of the root element; `nil` if WNS has no such type.
    package static func type(of xml: String) -> String? {
        var rest = xml[...]
        while let open = rest.firstIndex(of: "<") {
            rest = rest[rest.index(after: open)...]
            guard rest.first != "?", rest.first != "!" else { continue }
            switch rest.prefix(while: { $0.isLetter }) {
            case "toast": return "wns/toast"
            case "tile": return "wns/tile"
            case "badge": return "wns/badge"
            default: return nil
            }
        }
        return nil
    }
}
