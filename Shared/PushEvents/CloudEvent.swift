package import JSON
import PushCore

/// The content of a record without its envelope: CloudEvents 1.0 in Kafka's binary mode (`ce_*`
/// headers) or structured mode (`application/cloudevents+json`), or no envelope at all.
///
/// - SeeAlso: CloudEvents 1.0.2, Kafka protocol binding, section 3.
package struct CloudEvent: Sendable, Equatable {
    /// `nil` if the record is not a CloudEvent.
    package var id: String?
    package var source: String?
    package var type: String?
    package var data: JSONObject

    package static func unwrap(
        _ record: IncomingRecord,
        maximumBytes: Int
    ) throws(DeadLetterReason) -> CloudEvent {
        guard let value = record.value, !value.isEmpty else {
            throw DeadLetterReason(.emptyValue, "the record has no value")
        }
        guard value.count <= maximumBytes else {
            throw DeadLetterReason(
                .tooLarge,
                "\(value.count) bytes, of at most \(maximumBytes)"
            )
        }
        let envelope = Envelope(record.headers)
        let contentType = text(envelope.contentType)?.lowercased() ?? ""
        if contentType.hasPrefix("application/cloudevents") {
            return try structured(value, contentType: contentType)
        }
        if envelope.version != nil { return try binary(envelope, value) }
        let object = try object(value)
        // A structured event without its content type, as the Python package's `to_structured`
        // writes it, is recognised: a push request has no `specversion`.
        if object["specversion"]?.string != nil {
            return try structured(object)
        }
        // `ce_id` and `ce_source` are used even without `ce_specversion`.
        var event = CloudEvent(data: object)
        if let id = text(envelope.id) {
            event.id = try attribute("id", id)
            if let source = text(envelope.source) {
                event.source = try attribute("source", source)
            }
        }
        return event
    }

    /// The relevant headers, the last of each; their names are case-insensitive.
    private struct Envelope {
        var contentType: [UInt8]?
        var version: [UInt8]?
        var id: [UInt8]?
        var source: [UInt8]?
        var type: [UInt8]?

        init(_ headers: [RecordHeader]) {
            for header in headers {
                switch header.name.utf8.count {
                case 5 where header.isNamed("ce_id"): id = header.value
                case 7 where header.isNamed("ce_type"): type = header.value
                case 9 where header.isNamed("ce_source"): source = header.value
                case 12 where header.isNamed("content-type"): contentType = header.value
                case 14 where header.isNamed("ce_specversion"): version = header.value
                default: break
                }
            }
        }
    }

    private static func binary(
        _ envelope: Envelope,
        _ value: [UInt8]
    ) throws(DeadLetterReason) -> CloudEvent {
        var event = CloudEvent(data: [:])
        try event.readAttributes(
            version: text(envelope.version),
            id: text(envelope.id),
            source: text(envelope.source),
            type: text(envelope.type)
        )
        event.data = try object(value)
        return event
    }

    private static func structured(
        _ value: [UInt8],
        contentType: String
    ) throws(DeadLetterReason) -> CloudEvent {
        let mediaType = contentType.prefix { $0 != ";" && $0 != " " }
        guard mediaType == "application/cloudevents+json" else {
            throw DeadLetterReason(
                .invalidCloudEvent,
                "content-type must be application/cloudevents+json: one event, as JSON"
            )
        }
        return try structured(try object(value))
    }

    private static func structured(
        _ envelope: JSONObject
    ) throws(DeadLetterReason) -> CloudEvent {
        var event = CloudEvent(data: [:])
        try event.readAttributes(
            version: envelope["specversion"]?.string,
            id: envelope["id"]?.string,
            source: envelope["source"]?.string,
            type: envelope["type"]?.string
        )
        if let data = envelope["data"], !data.isNull {
            if let text = data.string {
                // Some producers put JSON into a string.
                event.data = try object(Array(text.utf8))
            } else if let object = data.object {
                event.data = object
            } else {
                throw DeadLetterReason(.invalidCloudEvent, "data must be an object")
            }
        } else if let text = envelope["data_base64"]?.string {
            guard let bytes = decodeBase64(text) else {
                throw DeadLetterReason(.invalidCloudEvent, "data_base64 is not Base64")
            }
            event.data = try object(bytes)
        } else {
            throw DeadLetterReason(.invalidCloudEvent, "data is missing")
        }
        return event
    }

    private mutating func readAttributes(
        version: String?,
        id: String?,
        source: String?,
        type: String?
    ) throws(DeadLetterReason) {
        guard version == "1.0" else {
            throw DeadLetterReason(.invalidCloudEvent, "specversion must be 1.0")
        }
        self.id = try Self.attribute("id", id)
        self.source = try Self.attribute("source", source)
        self.type = try Self.attribute("type", type)
    }

    private static func attribute(
        _ name: String,
        _ text: String?
    ) throws(DeadLetterReason) -> String {
        guard let text, (1...1024).contains(text.utf8.count), !text.holds(byte: 0)
        else {
            throw DeadLetterReason(
                .invalidCloudEvent,
                "\(name) must be a string of 1 to 1024 bytes"
            )
        }
        return text
    }

    /// Enough for a push that names 10,000 tokens, each with three fields.
    private static let maximumValues = 200_000

    private static func object(_ bytes: [UInt8]) throws(DeadLetterReason) -> JSONObject {
        let value: JSONValue
        do throws(JSONError) {
            value = try JSONValue.parse(bytes, maximumValues: maximumValues)
        } catch {
            throw DeadLetterReason(.invalidJSON, error.description)
        }
        guard let object = value.object else {
            throw DeadLetterReason(.notAnObject, "the value must be a JSON object")
        }
        return object
    }

    private static func text(_ value: [UInt8]?) -> String? {
        value.flatMap { String(validating: $0, as: UTF8.self) }
    }

    /// Decodes RFC 4648 section 4, with padding; `nil` for anything else.
    private static func decodeBase64(_ text: String) -> [UInt8]? {
        let digits = Array(text.utf8)
        guard digits.count.isMultiple(of: 4) else { return nil }
        let padding = digits.suffix(2).filter { $0 == UInt8(ascii: "=") }.count
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 4 * 3)
        var bits: UInt32 = 0
        var count = 0
        for digit in digits.dropLast(padding) {
            guard let value = base64Value(digit) else { return nil }
            bits = bits << 6 | value
            count += 6
            guard count >= 8 else { continue }
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            bits &= (1 << UInt32(count)) - 1
        }
        return bits == 0 ? bytes : nil
    }

    private static func base64Value(_ digit: UInt8) -> UInt32? {
        switch digit {
        case 65...90: UInt32(digit - 65)
        case 97...122: UInt32(digit - 71)
        case 48...57: UInt32(digit + 4)
        case UInt8(ascii: "+"): 62
        case UInt8(ascii: "/"): 63
        default: nil
        }
    }
}

extension RecordHeader {
    /// Whether the header has this name, which is in lower case.
    fileprivate func isNamed(_ name: StaticString) -> Bool {
        unsafe self.name.utf8.elementsEqual(
            UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        ) { (65...90).contains($0) ? $0 | 0x20 == $1 : $0 == $1 }
    }
}
