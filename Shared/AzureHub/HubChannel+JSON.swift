package import JSON
import PushCore

extension HubChannel {
    /// Parses a channel. `path` is the path of the object in the body, with a dot at its end.
    package init(_ object: JSONObject, in path: String) throws(AzureError) {
        let object = object.filtered
        guard let pushChannel = object["pushChannel"] else {
            throw AzureError("\(path)pushChannel is missing")
        }
        self.pushChannel = pushChannel
        tags = try HubJSON.tags(object["tags"], path + "tags")
        for (name, value) in try HubJSON.object(object["templates"], path + "templates") {
            let path = "\(path)templates.\(name.prefix(60))"
            templates.append((name, try Template(value, in: path)))
        }
    }

    func write(to object: inout JSONObject) {
        if !tags.isEmpty { object["tags"] = .array(tags.map(JSONValue.string)) }
        guard !templates.isEmpty else { return }
        var written = JSONObject()
        for (name, template) in templates { written[name] = .object(template.object(named: name)) }
        object["templates"] = .object(written)
    }

    var storedTemplates: JSONObject { storedTemplates(areNamesTags: true) }

    func storedTemplates(areNamesTags: Bool) -> JSONObject {
        var kept = JSONObject()
        for (name, template) in templates {
            var object = template.kept(as: name)
            if !areNamesTags { object["tags"] = .array(template.tags.map(JSONValue.string)) }
            kept[HubTemplate.key(name)] = .object(object)
        }
        return kept
    }

    /// Whether a template's text is filled with the properties of a send.
    package static func isExpression(_ text: String) -> Bool {
        let text = text.drop { $0.isWhitespace }
        return ["$(", "#(", "%(", ".(", "{", "'", "\""].contains { text.hasPrefix($0) }
    }

    mutating func readTemplates(_ kept: JSONObject) {
        for (key, value) in kept {
            guard let template = Template(kept: value) else { continue }
            templates.append((value["name"]?.string ?? key, template))
        }
    }
}

extension HubChannel.Template {
    package init(_ value: JSONValue, in path: String) throws(AzureError) {
        guard let object = value.object?.filtered else {
            throw AzureError("\(path) must be an object")
        }
        guard let body = object["body"]?.string, !body.isEmpty else {
            throw AzureError("\(path).body must be a string, not empty")
        }
        self.body = body
        headers = try HubJSON.headers(object["headers"], path + ".headers")
        expiry = try object["expiry"].map { value throws(AzureError) in
            try HubJSON.time(value, path + ".expiry")
        }
        tags = try HubJSON.tags(object["tags"], path + ".tags")
    }

    init?(kept: JSONValue) {
        guard let body = kept["body"]?.string else { return nil }
        self.body = body
        headers = kept["headers"]?.object ?? [:]
        expiry = kept["expiry"]?.string
        let name = kept["name"]?.string
        // The template's name is stored as a tag for tag expressions; it is not one of the client's tags.
        tags = (kept["tags"]?.array ?? []).compactMap(\.string).filter { $0 != name }
    }

    func kept(as name: String) -> JSONObject {
        var kept = object(named: name)
        kept["name"] = .string(name)
        return kept
    }

    /// Returns the form for clients: with its own name among its tags.
    func object(named name: String) -> JSONObject {
        var object: JSONObject = ["body": .string(body)]
        if !headers.isEmpty { object["headers"] = .object(headers) }
        if let expiry { object["expiry"] = .string(expiry) }
        let all = tags.contains(name) ? tags : tags + [name]
        object["tags"] = .array(all.map(JSONValue.string))
        return object
    }
}
