extension JSONValue {
    /// The text for people who read or edit it: each member on its own line, in the stored order.
    public var indented: String {
        var text = ""
        write(to: &text, indentation: "")
        return text
    }

    private func write(to text: inout String, indentation: String) {
        let inner = indentation + "  "
        switch self {
        case .object(let object) where !object.isEmpty:
            text += "{\n"
            for (index, (name, value)) in object.enumerated() {
                text += (index == 0 ? "" : ",\n") + inner + JSONValue.string(name).text + ": "
                value.write(to: &text, indentation: inner)
            }
            text += "\n\(indentation)}"
        case .array(let items) where !items.isEmpty:
            text += "[\n"
            for (index, item) in items.enumerated() {
                text += (index == 0 ? "" : ",\n") + inner
                item.write(to: &text, indentation: inner)
            }
            text += "\n\(indentation)]"
        case .null, .bool, .integer, .double, .number, .string, .array, .object:
            text += self.text
        }
    }
}
