package import JSON

/// Placeholders in the strings of a push's `data`. Each is replaced by a field of the device's
/// installation: `{{name}}`, `{{profile.city}}`. A placeholder may have a fallback for
/// installations without the field: `{{name|friend}}`.
///
/// Braces without a valid field name stay as they are. `{{|…}}` escapes text, so that
/// `{{|{{}}name}}` becomes `{{name}}`. A placeholder inside a value is not replaced.
package enum PushTemplate {
    package struct Placeholder: Hashable, Sendable {
        /// A field's name, or a path of names with dots between them.
        package var field: String
        /// The text for an installation without the field.
        package var fallback: String

        package init(field: String, fallback: String = "") {
            self.field = field
            self.fallback = fallback
        }
    }

    /// The most fields that one push may name.
    package static let maximumFields = 32
    private static let maximumFieldBytes = 128
    private static let maximumFallbackBytes = 256

    /// Keys that become part of a header or choose between platforms. They have no placeholders, as
    /// they must be the same for all devices.
    private static let plainKeys: ExactStringSet = [
        "collapse-id", "apns-push-type", "apns-priority", "_notificationChannel",
    ]

    /// Returns the fields that the placeholders name, without duplicates.
    package static func fields(of data: JSONObject?) -> [String] {
        guard let data, JSONValue.object(data).hasBrace else { return [] }
        var fields: [String] = []
        visit(data) { placeholder in
            if !fields.contains(placeholder.field), fields.count <= maximumFields {
                fields.append(placeholder.field)
            }
            return ""
        }
        return fields
    }

    /// Replaces each placeholder of the data with the caller's text.
    package static func replacing(
        _ data: JSONObject,
        _ text: (Placeholder) -> String
    ) -> JSONObject {
        visit(data, text)
    }

    @discardableResult
    private static func visit(
        _ data: JSONObject,
        _ text: (Placeholder) -> String
    ) -> JSONObject {
        var result = data
        for (key, value) in data where !plainKeys.contains(key) {
            if let object = value.object, ["ios", "android", "wp", "fcm"].contains(key) {
                result[key] = .object(visit(object, text))
            } else if let changed = rewritten(value, text) {
                result[key] = changed
            }
        }
        return result
    }

    /// Returns the rewritten value; `nil` if nothing is replaced, which is by far the most frequent
    /// case.
    private static func rewritten(
        _ value: JSONValue,
        _ text: (Placeholder) -> String
    ) -> JSONValue? {
        switch value {
        case .null, .bool, .integer, .double, .number: return nil
        case .string(let string): return rewritten(string, text).map(JSONValue.string)
        case .array(let elements):
            let changed = elements.map { rewritten($0, text) }
            guard changed.contains(where: { $0 != nil }) else { return nil }
            return .array(zip(elements, changed).map { $1 ?? $0 })
        case .object(let object):
            var result: JSONObject?
            for (key, value) in object {
                guard let changed = rewritten(value, text) else { continue }
                if result == nil { result = object }
                result?[key] = changed
            }
            return result.map(JSONValue.object)
        }
    }

    private static let open = UInt8(ascii: "{")
    private static let close = UInt8(ascii: "}")

    private static func rewritten(
        _ string: String,
        _ text: (Placeholder) -> String
    ) -> String? {
        guard string.holds(byte: open) else { return nil }
        let bytes = Array(string.utf8)
        var result: [UInt8] = []
        var isChanged = false
        var index = 0
        while index < bytes.count {
            if let part = Part(bytes, at: index) {
                switch part.placeholder {
                case nil: result += part.fallback
                case let placeholder?: result += text(placeholder).utf8
                }
                isChanged = true
                index = part.end
            } else {
                result.append(bytes[index])
                index += 1
            }
        }
        return isChanged ? String(decoding: result, as: UTF8.self) : nil
    }

    /// The text between two pairs of braces.
    private struct Part {
        /// The placeholder; `nil` if the fallback is escaped text.
        let placeholder: Placeholder?
        let fallback: ArraySlice<UInt8>
        /// The position after the closing braces.
        let end: Int

        /// Reads a bounded number of bytes, so that no string takes long.
        init?(_ bytes: [UInt8], at start: Int) {
            guard bytes[start] == open, start + 1 < bytes.count, bytes[start + 1] == open else {
                return nil
            }
            let bar = UInt8(ascii: "|")
            var index = start + 2
            let last = min(bytes.count, index + maximumFieldBytes + 1)
            while index < last, isOfField(bytes[index]) { index += 1 }
            guard index < last else { return nil }
            let name = String(decoding: bytes[(start + 2)..<index], as: UTF8.self).trimmed
            guard bytes[index] == bar else {
                guard bytes[index] == close, index + 1 < bytes.count, bytes[index + 1] == close,
                    isField(name)
                else { return nil }
                placeholder = Placeholder(field: name)
                fallback = []
                end = index + 2
                return
            }
            guard name.isEmpty || isField(name) else { return nil }
            let from = index + 1
            let limit = min(bytes.count, from + maximumFallbackBytes + 2)
            index = from
            while index + 1 < limit, bytes[index] != close || bytes[index + 1] != close {
                index += 1
            }
            guard index + 1 < limit else { return nil }
            fallback = bytes[from..<index]
            placeholder =
                name.isEmpty
                ? nil
                : Placeholder(field: name, fallback: String(decoding: fallback, as: UTF8.self))
            end = index + 2
        }
    }

    private static func isOfField(_ byte: UInt8) -> Bool {
        ASCII.isAlphanumeric(byte) || "_. ".utf8.contains(byte)
    }

    private static func isField(_ path: String) -> Bool {
        path.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
            .allSatisfy { name in
                guard let first = name.first else { return false }
                return (ASCII.isLetter(first) || first == UInt8(ascii: "_"))
                    && name.allSatisfy { ASCII.isAlphanumeric($0) || $0 == UInt8(ascii: "_") }
            }
    }
}

extension JSONValue {
    /// Whether a string within it has a brace, as every placeholder does.
    fileprivate var hasBrace: Bool {
        switch self {
        case .null, .bool, .integer, .double, .number: return false
        case .string(let text): return text.holds(byte: UInt8(ascii: "{"))
        case .array(let elements):
            for element in elements where element.hasBrace { return true }
        case .object(let object):
            for (_, value) in object where value.hasBrace { return true }
        }
        return false
    }
}

extension String {
    /// The string without the spaces around it.
    fileprivate var trimmed: String {
        var text = self[...]
        while text.first == " " { text.removeFirst() }
        while text.last == " " { text.removeLast() }
        return String(text)
    }
}
