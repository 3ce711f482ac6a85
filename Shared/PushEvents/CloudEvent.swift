package import JSON
import PushCore

/// What a record carries once its envelope is off: CloudEvents 1.0 in Kafka's binary mode (`ce_*`
/// headers) or structured mode (`application/cloudevents+json`), or no envelope at all.
///
/// - SeeAlso: CloudEvents 1.0.2, Kafka protocol binding, section 3.
package struct CloudEvent: Sendable, Equatable {
    /// `nil` where the record is no CloudEvent.
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
        let contentType = header("content-type", of: record)?.lowercased() ?? ""
        if contentType.hasPrefix("application/cloudevents") {
            return try structured(value, contentType: contentType)
        }
        if record.headers.contains(where: { $0.name.lowercased() == "ce_specversion" }) {
            return try binary(record, value)
        }
        let object = try object(value)
        // A structured event without its content type, as the Python package's `to_structured`
        // writes it, gives itself away: a push request has no `specversion`.
        if object["specversion"]?.string != nil {
            return try structured(object)
        }
        // The headers name an event also where nothing says of which version it is.
        var event = CloudEvent(data: object)
        if let id = header("ce_id", of: record) {
            event.id = try attribute("id", of: ["id": .string(id)])
            if let source = header("ce_source", of: record) {
                event.source = try attribute("source", of: ["source": .string(source)])
            }
        }
        return event
    }

    private static func binary(
        _ record: IncomingRecord,
        _ value: [UInt8]
    ) throws(DeadLetterReason) -> CloudEvent {
        var attributes: JSONObject = [:]
        for name in ["specversion", "id", "source", "type"] {
            attributes[name] = header("ce_" + name, of: record).map(JSONValue.string)
        }
        var event = CloudEvent(data: [:])
        try event.readAttributes(attributes)
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
        try event.readAttributes(envelope)
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
            throw DeadLetterReason(.invalidCloudEvent, "data is missing: the push request")
        }
        return event
    }

    private mutating func readAttributes(_ attributes: JSONObject) throws(DeadLetterReason) {
        guard attributes["specversion"]?.string == "1.0" else {
            throw DeadLetterReason(.invalidCloudEvent, "specversion must be 1.0")
        }
        id = try Self.attribute("id", of: attributes)
        source = try Self.attribute("source", of: attributes)
        type = try Self.attribute("type", of: attributes)
    }

    private static func attribute(
        _ name: String,
        of attributes: JSONObject
    ) throws(DeadLetterReason) -> String {
        guard let text = attributes[name]?.string, (1...1024).contains(text.utf8.count),
            !text.utf8.contains(0)
        else {
            throw DeadLetterReason(
                .invalidCloudEvent,
                "\(name) must be a string of 1 to 1024 bytes"
            )
        }
        return text
    }

    /// 10,000 tokens have three fields each.
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

    /// The last header of that name, whatever its case.
    private static func header(_ name: String, of record: IncomingRecord) -> String? {
        guard let header = record.headers.last(where: { $0.name.lowercased() == name }) else {
            return nil
        }
        return String(validating: header.value, as: UTF8.self)
    }

    /// RFC 4648 section 4, with padding; `nil` for anything else.
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
