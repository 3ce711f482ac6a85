import Cryptography
import HTTPServer
import JSON
import PushCore

/// An event of CloudEvents 1.0, from any mode.
struct IncomingEvent: Sendable {
    let id: String
    let source: String
    let type: String
    /// All attributes as strings, including extensions, in their order.
    let attributes: [(name: String, value: String)]
    let data: JSONValue
    let isExtended: Bool

    /// The `id` if it can name an object; else an id derived from `source` and `id`, which name the event.
    var objectID: String {
        IngestID.canonical(id)
            ?? IngestID.derived(from: ["cloudevent", source, id], digest: sha256)
    }

    private static let maximumAttributeBytes = 1024
    /// Attributes become headers of a record.
    private static let maximumAttributes = 64
    private static let maximumAttributesBytes = 16 << 10

    // MARK: Structured

    /// Parses an event from one JSON object. `valuesLeft` limits the values in encoded data, and is
    /// reduced by their number.
    init(structured value: JSONValue, valuesLeft: inout Int) throws(RefusedObject) {
        guard let envelope = value.object else {
            throw RefusedObject(pointer: "", reason: "an event must be an object")
        }
        var attributes: [(name: String, value: String)] = []
        for (name, value) in envelope where name != "data" && name != "data_base64" {
            if value.isNull { continue }
            guard Self.isName(name) else {
                throw RefusedObject(
                    pointer: "/" + JSONPointer.escaped(name),
                    reason: "an attribute's name is lower-case letters and digits"
                )
            }
            guard let text = Self.text(value) else {
                throw RefusedObject(
                    pointer: "/" + name,
                    reason: "an attribute is a text, a whole number, or true or false"
                )
            }
            attributes.append((name, text))
        }
        let contentType = attributes.first { $0.name == "datacontenttype" }?.value ?? ""
        let data: JSONValue
        if let coded = envelope["data_base64"], !coded.isNull {
            guard envelope["data"] == nil, let text = coded.string,
                let bytes = try? Base64.decode(text)
            else {
                throw RefusedObject(
                    pointer: "/data_base64",
                    reason: "must be Base64, and excludes data"
                )
            }
            data = try Self.json(bytes, contentType, at: "/data_base64", maximumValues: valuesLeft)
            valuesLeft -= ObjectText.values(data)
        } else {
            data = envelope["data"] ?? .null
        }
        try self.init(attributes, data, contentType)
    }

    // MARK: Binary

    /// Parses an event whose attributes are headers, and whose data is the body.
    init(binary request: HTTPServerRequest) throws(RefusedObject) {
        var attributes: [(name: String, value: String)] = []
        for field in request.headers {
            let header = field.name.lowercased()
            guard header.hasPrefix("ce-") else { continue }
            let name = String(header.dropFirst(3))
            guard Self.isName(name), !attributes.contains(where: { $0.name == name }) else {
                throw RefusedObject(
                    pointer: "/" + JSONPointer.escaped(name),
                    reason: "an attribute's name is lower-case letters and digits, once"
                )
            }
            attributes.append((name, Self.unescaped(field.value)))
        }
        // Java's HttpURLConnection sends this type for every body for which no type is set.
        let named = request.header("content-type") ?? ""
        let contentType = Self.mediaType(named) == "application/x-www-form-urlencoded" ? "" : named
        if !contentType.isEmpty, !attributes.contains(where: { $0.name == "datacontenttype" }) {
            attributes.append(("datacontenttype", contentType))
        }
        let data: JSONValue =
            request.body.isEmpty
            ? .null
            : try Self.json(
                request.body,
                contentType,
                at: "/data",
                maximumValues: ObjectLimits.valuesOfBody
            )
        try self.init(attributes, data, contentType)
    }

    private init(
        _ attributes: [(name: String, value: String)],
        _ data: JSONValue,
        _ contentType: String
    ) throws(RefusedObject) {
        func needed(_ name: String) throws(RefusedObject) -> String {
            guard let value = attributes.first(where: { $0.name == name })?.value, !value.isEmpty
            else { throw RefusedObject(pointer: "/" + name, reason: "is required") }
            return value
        }
        for (name, value) in attributes
        where value.utf8.count > Self.maximumAttributeBytes || value.utf8.contains(0) {
            throw RefusedObject(
                pointer: "/" + name,
                reason: "has at most \(Self.maximumAttributeBytes) bytes, and no U+0000"
            )
        }
        let size = attributes.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count }
        guard attributes.count <= Self.maximumAttributes, size <= Self.maximumAttributesBytes else {
            throw RefusedObject(
                pointer: "",
                reason: "an event has at most \(Self.maximumAttributes) attributes, of"
                    + " \(Self.maximumAttributesBytes) bytes together"
            )
        }
        guard try needed("specversion") == "1.0" else {
            throw RefusedObject(pointer: "/specversion", reason: "must be 1.0")
        }
        id = try needed("id")
        source = try needed("source")
        type = try needed("type")
        if let time = attributes.first(where: { $0.name == "time" })?.value,
            Instant(iso8601: time) == nil
        {
            throw RefusedObject(pointer: "/time", reason: "must be a time of RFC 3339")
        }
        // An event may have no data: then only its id is stored. PHP's SDK sends `null` instead.
        let data: JSONValue = data.isNull ? [:] : data
        guard data.object != nil else {
            throw RefusedObject(pointer: "/data", reason: "must be an object: it is what is stored")
        }
        self.attributes = attributes
        self.data = data
        isExtended = Self.mediaType(contentType) == "application/ejson"
    }

    private static func isName(_ name: String) -> Bool {
        !name.isEmpty
            && name.utf8.allSatisfy { (97...122).contains($0) || (48...57).contains($0) }
    }

    private static func text(_ value: JSONValue) -> String? {
        switch value {
        case .string(let text): text
        case .integer(let number): String(number)
        case .bool(let isTrue): String(isTrue)
        case .null, .double, .number, .array, .object: nil
        }
    }

    private static func mediaType(_ contentType: String) -> String {
        contentType.prefix { $0 != ";" && $0 != " " }.lowercased()
    }

    /// Parses data by its content type; some senders of JSON state none.
    private static func json(
        _ bytes: [UInt8],
        _ contentType: String,
        at pointer: String,
        maximumValues: Int
    ) throws(RefusedObject) -> JSONValue {
        let type = mediaType(contentType)
        let isJSON =
            type.isEmpty || type == "application/json" || type == "text/json"
            || type == "application/ejson" || type.hasSuffix("+json")
        guard isJSON else {
            throw RefusedObject(
                pointer: pointer,
                reason: "must be JSON: the event says that it is something else"
            )
        }
        if bytes.count > ObjectLimits.bytes,
            ObjectText.leastBytes(bytes[...]) > ObjectLimits.bytes
        {
            throw ObjectText.tooLarge(nil)
        }
        do throws(JSONError) {
            return try JSONValue.parse(
                bytes,
                maximumDepth: ObjectLimits.levelsOfBody,
                maximumValues: maximumValues
            )
        } catch {
            throw RefusedObject(pointer: pointer, reason: "is not JSON: \(error.description)")
        }
    }

    /// Decodes an attribute from a header by the HTTP binding (3.1.3.2): removes the double quotes
    /// around it and their backslashes, then decodes the percent escapes. A `%` that is not part of
    /// an escape stays.
    ///
    /// A value with non-ASCII characters is not decoded: its sender (Go and Java send UTF-8,
    /// JavaScript Latin-1) escapes nothing.
    static func unescaped(_ value: String) -> String {
        guard value.utf8.allSatisfy({ $0 < 0x80 }) else { return value }
        var text = Array(value.utf8)
        let (quote, backslash) = (UInt8(ascii: "\""), UInt8(ascii: "\\"))
        if text.count >= 2, text.first == quote, text.last == quote {
            var plain: [UInt8] = []
            var isEscaped = false
            for byte in text.dropFirst().dropLast() {
                if byte == backslash, !isEscaped {
                    isEscaped = true
                } else {
                    plain.append(byte)
                    isEscaped = false
                }
            }
            text = plain
        }
        var bytes: [UInt8] = []
        var index = 0
        while index < text.count {
            if text[index] == UInt8(ascii: "%"), index + 2 < text.count,
                let byte =
                    (try? Hex.decode(String(decoding: text[index + 1...index + 2], as: UTF8.self)))?
                    .first
            {
                bytes.append(byte)
                index += 3
            } else {
                bytes.append(text[index])
                index += 1
            }
        }
        return String(validating: bytes, as: UTF8.self) ?? String(decoding: text, as: UTF8.self)
    }
}
