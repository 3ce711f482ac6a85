package import JSON
package import PushCore

/// The output of a platform's renderer for a push. Its marks are not located yet, and its size is
/// not checked yet.
struct PayloadDraft {
    /// The way in which the platform measures a payload.
    enum Measure {
        case bytes
        /// The bytes of names and strings, before JSON escapes them: the measure of FCM.
        case texts(Int)
    }

    var payload: RenderedPayload
    var measure = Measure.bytes
    var limit: Int
}

/// A push that all devices with the same platform and language share, with the positions of each
/// device's own values.
///
/// The positions are found in the rendered body itself. Each placeholder is rendered as a mark that
/// contains a quotation mark. The escaped form of the mark shows how a value must be escaped there,
/// for example in JSON inside JSON, or in JSON inside XML.
package struct PayloadTemplate: Sendable {
    private struct Point {
        /// Offset into the body.
        var offset: Int
        var value: PlaceholderMarks.Value
        var escapes: Escapes
    }

    private let payload: RenderedPayload
    private let points: [Point]
    /// The size without the devices' values.
    private let size: Int
    private let limit: Int
    private let countsTexts: Bool

    /// Whether its payload differs between devices.
    package var isPersonal: Bool { !points.isEmpty }
    /// The approximate size in memory.
    package var weightBytes: Int {
        payload.headers.reduce(256 + payload.body.count + points.count * 96) {
            $0 + 32 + $1.name.weightBytes + $1.value.weightBytes
        }
    }
    /// Whether a second copy replaces the first on the device.
    package var repeatOverwrites: Bool { payload.repeatOverwrites }

    init(_ draft: PayloadDraft, _ marks: PlaceholderMarks?) throws(RenderingError) {
        limit = draft.limit
        var size: Int
        switch draft.measure {
        case .bytes:
            size = draft.payload.body.count
            countsTexts = false
        case .texts(let count):
            size = count
            countsTexts = true
        }
        var payload = draft.payload
        var points: [Point] = []
        if let marks {
            let found = marks.search(draft.payload.body)
            payload.body = found.body
            for index in payload.splicePoints.indices {
                payload.splicePoints[index].offset -=
                    found.removed(before: payload.splicePoints[index].offset)
            }
            for mark in found.marks {
                points.append(Point(offset: mark.at, value: mark.value, escapes: mark.escapes))
                size -= mark.escapes.size(of: mark.text, countsTexts: countsTexts)
            }
        }
        self.payload = payload
        self.points = points
        self.size = size
        guard size <= limit else { throw .tooLarge(bytes: size, limit: limit) }
    }

    /// Returns the payload of one device.
    ///
    /// - Parameters:
    ///   - values: The values of its installation, by field. A placeholder gets its fallback if its
    ///     value is absent, `null`, empty, a list or an object.
    ///   - badge: The installation's badge after this push; `nil` if it has none.
    /// - Returns: The payload, complete except for the token.
    /// - Throws: `tooLarge` if the payload of this device exceeds the limit.
    package func payload(
        values: JSONObject? = nil,
        badge: Int? = nil
    ) throws(RenderingError) -> RenderedPayload {
        guard !points.isEmpty else { return payload }
        var result = payload
        var size = size
        var body: [UInt8] = []
        body.reserveCapacity(payload.body.count + 64 * points.count)
        var from = 0
        for point in points {
            body.append(contentsOf: payload.body[from..<point.offset])
            from = point.offset
            let text = point.value.text(values, badge)
            let count = body.count
            point.escapes.write(text, into: &body)
            size += point.escapes.size(of: text, countsTexts: countsTexts)
            for (index, splice) in payload.splicePoints.enumerated()
            where splice.offset > point.offset {
                result.splicePoints[index].offset += body.count - count
            }
        }
        body.append(contentsOf: payload.body[from...])
        result.body = body
        guard size <= limit else { throw .tooLarge(bytes: size, limit: limit) }
        return result
    }
}

/// How a string is escaped at a position of a body.
struct Escapes: Equatable {
    /// How often JSON escapes it, 0...3: twice for JSON inside JSON.
    var json: Int
    /// Whether XML escapes it, outside of any JSON.
    var xml: Bool

    func write(_ text: String, into body: inout [UInt8]) {
        var text = text
        for _ in 0..<json {
            var quoted: [UInt8] = []
            writeJSONString(text, into: &quoted)
            text = String(decoding: quoted.dropFirst().dropLast(), as: UTF8.self)
        }
        body.append(contentsOf: (xml ? xmlEscaped(text) : text).utf8)
    }

    /// Returns the size of a string at this position.
    func size(of text: String, countsTexts: Bool) -> Int {
        var escapes = self
        if countsTexts, json > 0 { escapes.json -= 1 }
        var body: [UInt8] = []
        escapes.write(text, into: &body)
        return body.count
    }
}

/// The marks that stand for values of devices in a push's data while the push is rendered.
struct PlaceholderMarks {
    enum Value: Equatable, Sendable {
        case field(PushTemplate.Placeholder)
        /// A number. For a device without a stored badge, `change` is applied to 0. MPNS' tiles
        /// show no more than `highest`.
        case badge(BadgeChange, highest: Int)

        func text(_ values: JSONObject?, _ badge: Int?) -> String {
            switch self {
            case .badge(let change, let highest):
                return String(min(badge ?? change.applied(to: 0), highest))
            case .field(let placeholder):
                let text: String? =
                    switch values?[placeholder.field] {
                    case .string(let text)?: text
                    case .bool, .integer, .double, .number: values?[placeholder.field]?.text
                    case nil, .null, .array, .object: nil
                    }
                return text.flatMap { $0.isEmpty ? nil : $0 } ?? placeholder.fallback
            }
        }
    }

    /// A character of the private use area that does not occur in the data. It has three bytes in
    /// UTF-8.
    private let scalar: Unicode.Scalar
    private var values: [Value] = []

    /// Marks the push's data. Returns the data and the meaning of the marks; `nil` if there are no
    /// marks.
    static func mark(
        _ request: PushRequest,
        for platform: Platform
    ) throws(RenderingError) -> (JSONObject, PlaceholderMarks)? {
        let badgeChange = request.badgeChange(for: platform)
        guard let data = request.data, !request.templateFields.isEmpty || badgeChange != nil else {
            return nil
        }
        guard let scalar = freeScalar(data) else {
            throw .invalid(field: "data", problem: "holds every character of the private use area")
        }
        var marks = PlaceholderMarks(scalar: scalar)
        var marked = PushTemplate.replacing(data) { marks.add(.field($0)) }
        if let badgeChange {
            let highest = platform == .mpns ? MPNSRequest.highestCount : .max
            marks.markBadge(.badge(badgeChange, highest: highest), in: &marked)
        }
        return (marked, marks)
    }

    /// Marks every badge in `data`, also in the platforms' own objects. The renderer then takes the
    /// right one.
    private mutating func markBadge(_ value: Value, in data: inout JSONObject) {
        let mark = JSONValue.number(add(value, isQuoted: false))
        for name in ["ios", "android", "fcm", "wp"] {
            guard let own = data[name]?.object else { continue }
            data[name] = .object(Self.marked(own, mark))
        }
        data = Self.marked(data, mark)
    }

    /// Returns the object with the mark in place of its badge and of the badge in its `aps`.
    private static func marked(_ object: JSONObject, _ mark: JSONValue) -> JSONObject {
        var object = object
        if let badge = object["badge"], BadgeChange(badge) != nil { object["badge"] = mark }
        if var aps = object["aps"]?.object, let badge = aps["badge"], BadgeChange(badge) != nil {
            aps["badge"] = mark
            object["aps"] = .object(aps)
        }
        return object
    }

    /// Whether a `badge` is a whole number, or the mark for one.
    static func isBadge(_ value: JSONValue) -> Bool {
        if case .number(let text) = value {
            return text.first?.isWholeNumber == false && text.first != "-"
        }
        return value.integer != nil
    }

    private init(scalar: Unicode.Scalar) { self.scalar = scalar }

    private static func freeScalar(_ data: JSONObject) -> Unicode.Scalar? {
        let area: ClosedRange<UInt32> = 0xE000...0xF8FF
        var used: Set<UInt32> = []
        for scalar in JSONValue.object(data).text.unicodeScalars where area.contains(scalar.value) {
            used.insert(scalar.value)
        }
        return area.lazy.first { !used.contains($0) }.flatMap(Unicode.Scalar.init)
    }

    private mutating func add(_ value: Value, isQuoted: Bool = true) -> String {
        let index = values.firstIndex(of: value) ?? values.count
        if index == values.count { values.append(value) }
        return text(index, isQuoted: isQuoted)
    }

    /// Returns the mark. The mark of a number has no quotation mark, as a number is never escaped.
    private func text(_ index: Int, isQuoted: Bool) -> String {
        "\(scalar)\(isQuoted ? "\"" : "")\(index)\(scalar)"
    }

    struct Found {
        struct Mark {
            /// Offset into the body without marks.
            var at: Int
            var value: Value
            var escapes: Escapes
            /// The mark itself, before it was escaped.
            var text: String
            /// Its range in the body with marks.
            var was: Range<Int>
        }

        var body: [UInt8] = []
        var marks: [Mark] = []

        func removed(before offset: Int) -> Int {
            marks.reduce(0) { $0 + ($1.was.upperBound <= offset ? $1.was.count : 0) }
        }
    }

    /// Removes the marks from a body, and returns their positions.
    func search(_ body: [UInt8]) -> Found {
        let edge = Array(String(scalar).utf8)
        var found = Found()
        found.body.reserveCapacity(body.count)
        var index = 0
        while index < body.count {
            if body[index] == edge[0],
                let mark = mark(in: body, at: index, edge: edge, as: found.body.count)
            {
                found.marks.append(mark)
                index = mark.was.upperBound
            } else {
                found.body.append(body[index])
                index += 1
            }
        }
        return found
    }

    private func mark(
        in body: [UInt8],
        at start: Int,
        edge: [UInt8],
        as offset: Int
    ) -> Found.Mark? {
        func holds(_ bytes: [UInt8], at index: Int) -> Bool {
            index + bytes.count <= body.count
                && body[index..<(index + bytes.count)].elementsEqual(bytes)
        }
        guard holds(edge, at: start) else { return nil }
        var index = start + edge.count
        var backslashes = 0
        while index < body.count, body[index] == UInt8(ascii: "\\"), backslashes < 8 {
            backslashes += 1
            index += 1
        }
        guard let json = [0: 0, 1: 1, 3: 2, 7: 3][backslashes] else { return nil }
        let quote = Array("&quot;".utf8)
        let isXML = holds(quote, at: index)
        let isQuoted = isXML || holds([UInt8(ascii: "\"")], at: index)
        guard isQuoted || backslashes == 0 else { return nil }
        if isQuoted { index += isXML ? quote.count : 1 }
        var number = 0
        while index < body.count, (48...57).contains(body[index]), number < 100_000 {
            number = number * 10 + Int(body[index] - 48)
            index += 1
        }
        guard number < values.count, holds(edge, at: index) else { return nil }
        return Found.Mark(
            at: offset,
            value: values[number],
            escapes: Escapes(json: json, xml: isXML),
            text: text(number, isQuoted: isQuoted),
            was: start..<(index + edge.count)
        )
    }
}
