import JSON
import PushCore
import RemoteConfig

/// The fields of the page on which a push is written, as they were typed, and the request that they
/// make.
struct SendForm: Sendable {
    enum Audience: String, CaseIterable { case matching = "some", named, condition, everyone }
    enum Timing: String, CaseIterable { case now, at, local }
    enum Comparison: String, CaseIterable {
        case equals, isAmong, differs, atLeast, lessThan, beginsWith, exists
    }

    /// A condition on one field.
    struct Row: Equatable {
        var field: String
        var comparison: Comparison
        var value: String
    }

    /// The text in one language.
    struct Variant: Equatable {
        var locale: String
        var title: String
        var text: String
    }

    /// An invalid field: its name in the form, and a sentence.
    struct Problem: Error, Equatable {
        let field: String
        let sentence: String
    }

    static let maximumRows = 10
    static let maximumVariants = 10

    private var values: [String: String]

    init(_ values: [String: String] = [:]) { self.values = values }

    init(_ form: Form) {
        var values: [String: String] = [:]
        for name in form.names where Self.isField(name) { values[name] = form[name] ?? "" }
        self.values = values
    }

    init(_ object: JSONObject) {
        var values: [String: String] = [:]
        for (name, value) in object where Self.isField(name) { values[name] = value.string ?? "" }
        self.values = values
    }

    var object: JSONObject {
        JSONObject(values.sorted { $0.key < $1.key }.map { ($0.key, JSONValue.string($0.value)) })
    }

    private static let fields: Set<String> = [
        "who", "channels", "tags", "installations", "identities", "where", "title", "text", "sound",
        "badge", "collapse", "data", "when", "time", "zone", "expiry", "pace", "environment",
        "silent", Self.origin,
    ]

    /// The draft of which this one is a test.
    static let origin = "origin"

    private static func isField(_ name: String) -> Bool {
        if fields.contains(name) { return true }
        let bytes = Array(name.utf8)
        return bytes.count == 2 && "fovlxy".utf8.contains(bytes[0])
            && (0x30...0x39).contains(bytes[1])
    }

    subscript(name: String) -> String {
        get { values[name] ?? "" }
        set { values[name] = newValue }
    }

    // MARK: Parts

    /// The audience is empty at first: nothing is chosen for the sender.
    var audience: Audience? { Audience(rawValue: self["who"]) }
    var timing: Timing { Timing(rawValue: self["when"]) ?? .now }

    var rows: [Row] {
        get {
            (0..<Self.maximumRows).compactMap { index in
                guard values["f\(index)"] != nil else { return nil }
                return Row(
                    field: self["f\(index)"].trimmed,
                    comparison: Comparison(rawValue: self["o\(index)"]) ?? .equals,
                    value: self["v\(index)"]
                )
            }
        }
        set {
            for index in 0..<Self.maximumRows {
                let row = newValue.indices.contains(index) ? newValue[index] : nil
                values["f\(index)"] = row?.field
                values["o\(index)"] = row?.comparison.rawValue
                values["v\(index)"] = row?.value
            }
        }
    }

    var variants: [Variant] {
        get {
            (0..<Self.maximumVariants).compactMap { index in
                guard values["l\(index)"] != nil else { return nil }
                return Variant(
                    locale: self["l\(index)"].trimmed,
                    title: self["x\(index)"],
                    text: self["y\(index)"]
                )
            }
        }
        set {
            for index in 0..<Self.maximumVariants {
                let variant = newValue.indices.contains(index) ? newValue[index] : nil
                values["l\(index)"] = variant?.locale
                values["x\(index)"] = variant?.title
                values["y\(index)"] = variant?.text
            }
        }
    }

    // MARK: The request

    /// Returns the request, as `PushRequest` reads it.
    ///
    /// - Throws: `Problem` for the first field that is invalid.
    func request(_ t: Words) throws(Problem) -> JSONObject {
        var request = try audienceFields(t)
        request["data"] = .object(try content(t))
        try addTimes(to: &request, t)
        if !self["collapse"].trimmed.isEmpty {
            request["collapse_id"] = .string(self["collapse"].trimmed)
        }
        if !self["pace"].trimmed.isEmpty {
            request["pace"] = JSONValue(try whole("pace", 1...10_000_000, t))
        }
        if self["environment"] == "sandbox" { request["prod"] = "dev" }
        return request
    }

    private func audienceFields(_ t: Words) throws(Problem) -> JSONObject {
        switch audience {
        case nil: throw Problem(field: "who", sentence: t("Choose who gets the push."))
        case .everyone: return [:]
        case .named: return try named(t)
        case .condition:
            let text = self["where"].trimmed
            guard let value = try? JSONValue.parse(text), value.object != nil else {
                throw Problem(
                    field: "where",
                    sentence: t(
                        "This is no JSON object. Example: {example}",
                        [
                            "example": "{\"city\": \"Oslo\"}"
                        ]
                    )
                )
            }
            guard value.object?.isEmpty == false else {
                throw Problem(
                    field: "where",
                    sentence: t("This selects every device. Choose everyone for that.")
                )
            }
            return ["where": value]
        case .matching: return try selected(t)
        }
    }

    private func named(_ t: Words) throws(Problem) -> JSONObject {
        var fields: JSONObject = [:]
        for name in ["installations", "identities"] {
            let ids = lines(name)
            if !ids.isEmpty { fields[name] = .array(ids.map(JSONValue.string)) }
        }
        guard !fields.isEmpty else {
            throw Problem(
                field: "installations",
                sentence: t("Name at least one device or identity, one a line.")
            )
        }
        return fields
    }

    private func selected(_ t: Words) throws(Problem) -> JSONObject {
        var fields: JSONObject = [:]
        let channels = lines("channels")
        if !channels.isEmpty { fields["channels"] = .array(channels.map(JSONValue.string)) }
        if !self["tags"].trimmed.isEmpty { fields["tags"] = .string(self["tags"].trimmed) }
        var conditions: [JSONValue] = []
        for (index, row) in rows.enumerated() {
            guard !row.field.isEmpty else {
                // A condition that is left out would select more devices.
                guard row.value.trimmed.isEmpty else {
                    throw Problem(field: "v\(index)", sentence: t("Name the field of this value."))
                }
                continue
            }
            conditions.append([row.field: try Self.condition(row, at: index, t)])
        }
        if conditions.count == 1 { fields["where"] = conditions[0] }
        if conditions.count > 1 { fields["where"] = ["$and": .array(conditions)] }
        guard !fields.isEmpty else {
            throw Problem(
                field: "channels",
                sentence: t("Add a channel, tags or a condition. Choose everyone for all devices.")
            )
        }
        return fields
    }

    /// Returns a field's lines without blanks around them.
    private func lines(_ name: String) -> [String] {
        self[name].split(whereSeparator: \.isNewline).map { String($0).trimmed }
            .filter { !$0.isEmpty }
    }

    private static func condition(
        _ row: Row,
        at index: Int,
        _ t: Words
    ) throws(Problem) -> JSONValue {
        let value = scalar(row.value)
        if [.differs, .beginsWith].contains(row.comparison), row.value.trimmed.isEmpty {
            throw Problem(field: "v\(index)", sentence: t("Name at least one value."))
        }
        switch row.comparison {
        case .exists:
            let word = row.value.trimmed.lowercased()
            guard ["", "true", "false"].contains(word) else {
                throw Problem(field: "v\(index)", sentence: t("This is true or false."))
            }
            return ["$exists": .bool(word != "false")]
        case .equals: return value
        case .differs: return ["$ne": value]
        case .isAmong:
            let items = row.value.split(separator: ",").map { scalar(String($0)) }
            guard !items.isEmpty else {
                throw Problem(field: "v\(index)", sentence: t("Name at least one value."))
            }
            return ["$in": .array(items)]
        case .atLeast: return ["$gte": value]
        case .lessThan: return ["$lt": value]
        case .beginsWith:
            let quoted = row.value.trimmed.map { character in
                character.isLetter || character.isNumber ? "\(character)" : "\\\(character)"
            }.joined()
            return ["$regex": .string("^" + quoted)]
        }
    }

    /// Reads a value: a number or a boolean if it looks like one, a text in quotes or not.
    private static func scalar(_ text: String) -> JSONValue {
        let text = text.trimmed
        guard let value = try? JSONValue.parse(text) else { return .string(text) }
        switch value {
        case .bool, .integer, .double, .number, .string: return value
        case .null, .array, .object: return .string(text)
        }
    }

    private func content(_ t: Words) throws(Problem) -> JSONObject {
        var data: JSONObject = [:]
        if !self["data"].trimmed.isEmpty {
            guard let own = (try? JSONValue.parse(self["data"]))?.object else {
                throw Problem(
                    field: "data",
                    sentence: t(
                        "This is no JSON object. Example: {example}",
                        [
                            "example": "{\"match\": 8813}"
                        ]
                    )
                )
            }
            data = own
        }
        if self["silent"] == "on" {
            data["content-available"] = 1
        } else {
            guard !self["text"].trimmed.isEmpty else {
                throw Problem(
                    field: "text",
                    sentence: t("Write a text, or choose a silent push.")
                )
            }
            data["alert"] = .string(self["text"])
            if !self["title"].trimmed.isEmpty { data["title"] = .string(self["title"]) }
            try addVariants(to: &data, t)
        }
        if !self["sound"].trimmed.isEmpty { data["sound"] = .string(self["sound"].trimmed) }
        let badge = self["badge"].trimmed
        if badge.lowercased() == "increment" {
            data["badge"] = "Increment"
        } else if !badge.isEmpty {
            data["badge"] = JSONValue(try whole("badge", 0...99_999, t))
        }
        return data
    }

    private func addVariants(to data: inout JSONObject, _ t: Words) throws(Problem) {
        for (index, variant) in variants.enumerated() where !variant.locale.isEmpty {
            guard !variant.text.trimmed.isEmpty else {
                throw Problem(
                    field: "y\(index)",
                    sentence: t("Write the text in this language, or remove the language.")
                )
            }
            data["alert-" + variant.locale] = .string(variant.text)
            if !variant.title.trimmed.isEmpty {
                data["title-" + variant.locale] = .string(variant.title)
            }
        }
    }

    private func addTimes(to request: inout JSONObject, _ t: Words) throws(Problem) {
        if timing != .now {
            // A browser's field has no seconds: 2026-11-26T07:30.
            let text = self["time"].trimmed.replacing(" ", with: "T")
            let full = text.utf8.count == 16 ? text + ":00" : text
            guard let local = LocalDateTime(iso8601: full) else {
                throw Problem(
                    field: "time",
                    sentence: t(
                        "“{text}” is not a time. Example: {example}",
                        [
                            "text": String(text.prefix(40)), "example": "2026-11-26T07:30",
                        ]
                    )
                )
            }
            switch timing {
            case .at where isUTC: request["push_time"] = .string(full + "Z")
            case .at:
                request["push_time"] = .string(try zoned(local, t).instant.iso8601)
            case .local, .now:
                // Without a zone it is each device's own time.
                request["push_time"] = .string(full)
            }
        }
        if !self["expiry"].trimmed.isEmpty {
            let hours = try whole("expiry", 1...8760, t)
            request["expiration_interval"] = JSONValue(hours * 3600)
        }
    }

    private var isUTC: Bool { ["", "UTC"].contains(self["zone"].trimmed) }

    private func zoned(_ time: LocalDateTime, _ t: Words) throws(Problem) -> ZonedTime {
        let zone = self["zone"].trimmed
        guard let zoned = ZonedTime(time, in: zone) else {
            throw Problem(
                field: "zone",
                sentence: t(
                    "“{text}” is not a time zone. Example: {example}",
                    ["text": String(zone.prefix(40)), "example": "Europe/Berlin"]
                )
            )
        }
        return zoned
    }

    /// The chosen time in a zone other than UTC; `nil` if there is none.
    var zonedTime: ZonedTime? {
        let text = self["time"].trimmed.replacing(" ", with: "T")
        guard timing == .at, !isUTC,
            let time = LocalDateTime(iso8601: text.utf8.count == 16 ? text + ":00" : text)
        else { return nil }
        return ZonedTime(time, in: self["zone"].trimmed)
    }

    private func whole(
        _ name: String,
        _ range: ClosedRange<Int>,
        _ t: Words
    ) throws(Problem) -> Int {
        guard let number = Int(self[name].trimmed), range.contains(number) else {
            throw Problem(
                field: name,
                sentence: t(
                    "This is a whole number from {first} to {last}.",
                    [
                        "first": t.number(range.lowerBound), "last": t.number(range.upperBound),
                    ]
                )
            )
        }
        return number
    }

    /// The field of the form that a field of the request comes from.
    static func field(ofRequest path: String) -> String {
        switch path.prefix(while: { $0 != "." && $0 != "[" }) {
        case "channels", "tags", "installations", "identities", "where", "pace":
            return
                String(path.prefix { $0 != "." && $0 != "[" })
        case "push_time": return "time"
        case "expiration_interval": return "expiry"
        case "collapse_id": return "collapse"
        case "data": break
        default: return "who"
        }
        switch path.dropFirst("data.".utf8.count) {
        case "alert": return "text"
        case "title": return "title"
        case "sound": return "sound"
        case "badge": return "badge"
        default: return "data"
        }
    }
}
