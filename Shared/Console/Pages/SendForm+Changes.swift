import Cryptography
import JSON

extension SendForm {
    /// Applies a button of the page that adds or removes a row.
    mutating func change(_ act: String) {
        switch act {
        case "add":
            guard rows.count < Self.maximumRows else { return }
            rows.append(Row(field: "", comparison: .equals, value: ""))
        case "add-language":
            guard variants.count < Self.maximumVariants else { return }
            variants.append(Variant(locale: "", title: "", text: ""))
        default:
            if let index = Self.index(act, after: "remove-language-"),
                variants.indices.contains(index)
            {
                variants.remove(at: index)
            } else if let index = Self.index(act, after: "remove-"), rows.indices.contains(index) {
                rows.remove(at: index)
            }
        }
    }

    /// Returns a draft of the same message that goes to these installations only, now and without a
    /// pace. `origin` is the draft that it tests.
    func test(on installations: [String], of origin: String) -> SendForm {
        var test = self
        for name in ["channels", "tags", "identities", "where", "when", "time", "zone", "pace"] {
            test[name] = ""
        }
        test.rows = []
        test["who"] = Audience.named.rawValue
        test["installations"] = installations.joined(separator: "\n")
        test[Self.origin] = origin
        return test
    }

    private static func index(_ act: String, after prefix: String) -> Int? {
        act.hasPrefix(prefix) ? Int(act.dropFirst(prefix.count)) : nil
    }

    /// Identifies the content: a review is of this content and no other.
    var digest: String { Hex.encode(sha256(JSONValue.object(object).bytes)) }

    /// Returns the fields of a stored request that this page has no fields for, and that a copy would
    /// lose. The times of the old push are chosen again.
    static func uncopied(_ request: JSONObject) -> [String] {
        let kept: Set<String> = [
            "channels", "tags", "where", "installations", "identities", "data", "collapse_id",
            "pace",
            "prod", "push_time", "expiration_time", "expiration_interval", "dry_run", "app", "id",
            "source", "notification_id", "cql", "platforms", "tokens", "audience_topic",
        ]
        return request.map(\.key).filter { !kept.contains($0) }.sorted()
    }

    /// Returns the request's audience alone, to count it.
    ///
    /// - Throws: `Problem`.
    func audienceRequest(_ t: Words) throws(Problem) -> JSONObject {
        var copy = self
        copy["text"] = "."
        copy["silent"] = ""
        copy["data"] = ""
        copy["when"] = ""
        copy["expiry"] = ""
        copy["pace"] = ""
        copy["badge"] = ""
        copy.variants = []
        return try copy.request(t)
    }

    /// Makes a draft of a stored request. An audience that the rows cannot express becomes a
    /// condition as `where`, or named devices.
    init(copying request: JSONObject) {
        self.init()
        var data = request["data"]?.object ?? [:]
        func take(_ key: String) -> String {
            defer { data[key] = nil }
            return data[key]?.string ?? data[key].map(\.text) ?? ""
        }
        if data["content-available"] != nil, data["alert"] == nil {
            self["silent"] = "on"
            data["content-available"] = nil
        }
        if let alert = data["alert"]?.object {
            self["title"] = alert["title"]?.string ?? ""
            self["text"] = alert["body"]?.string ?? ""
            data["alert"] = nil
        } else {
            self["text"] = take("alert")
            self["title"] = take("title")
        }
        self["sound"] = take("sound")
        self["badge"] = take("badge")
        var found: [Variant] = []
        for (key, value) in data where key.hasPrefix("alert-") && found.count < 10 {
            let locale = String(key.dropFirst("alert-".count))
            let title = data["title-" + locale]?.string ?? ""
            found.append(Variant(locale: locale, title: title, text: value.string ?? ""))
        }
        for variant in found {
            data["alert-" + variant.locale] = nil
            data["title-" + variant.locale] = nil
        }
        variants = found
        if !data.isEmpty { self["data"] = JSONValue.object(data).indented }
        self["collapse"] = request["collapse_id"]?.string ?? ""
        self["pace"] = request["pace"].map(\.text) ?? ""
        if request["prod"]?.string == "dev" { self["environment"] = "sandbox" }
        takeAudience(request)
    }

    /// Takes an audience of one kind. A combination of kinds has no fields on the page; then nobody is
    /// chosen, as a part of a condition would select more devices.
    private mutating func takeAudience(_ request: JSONObject) {
        let kinds = Self.selectorKinds.filter { kind in kind.contains { request[$0] != nil } }
        guard kinds.count == 1, let kind = kinds.first else { return }
        func texts(_ key: String) -> [String] {
            if let one = request[key]?.string { return [one] }
            return request[key]?.array?.compactMap(\.string) ?? []
        }
        switch kind {
        case Self.named:
            self["who"] = Audience.named.rawValue
            self["installations"] = texts("installations").joined(separator: "\n")
            self["identities"] = texts("identities").joined(separator: "\n")
        case Self.selected:
            self["who"] = Audience.matching.rawValue
            self["channels"] = texts("channels").joined(separator: "\n")
            self["tags"] = request["tags"]?.string ?? ""
        case ["where"]:
            guard let condition = request["where"], condition.object?.isEmpty == false else {
                return
            }
            self["who"] = Audience.condition.rawValue
            self["where"] = condition.indented
        default: break
        }
    }

    private static let named = ["installations", "identities"]
    private static let selected = ["channels", "tags"]
    private static let selectorKinds = [
        named, selected, ["where"], ["cql"], ["platforms"], ["template"], ["tokens"],
        ["audience_topic"],
    ]
}
