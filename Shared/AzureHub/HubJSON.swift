package import JSON
package import PushCore

/// Parses the parts of Azure's JSON; errors name the path, never a value.
package enum HubJSON {
    package static func object(_ value: JSONValue?, _ path: String) throws(AzureError) -> JSONObject
    {
        guard let value else { return [:] }
        guard let object = value.object else { throw AzureError("\(path) must be an object") }
        return object.filtered
    }

    package static func headers(_ value: JSONValue?, _ path: String) throws(AzureError)
        -> JSONObject
    {
        let headers = try object(value, path)
        for (name, value) in headers where value.string == nil {
            throw AzureError("\(path).\(name.prefix(60)) must be a string")
        }
        return headers
    }

    /// Parses tags: each once, in the given order.
    package static func tags(_ value: JSONValue?, _ path: String) throws(AzureError) -> [String] {
        guard let value else { return [] }
        guard let list = value.array else {
            throw AzureError("\(path) must be an array of strings")
        }
        var tags: [String] = []
        var known: ExactStringSet = []
        for entry in list {
            guard let tag = entry.string else {
                throw AzureError("\(path) must be an array of strings")
            }
            if known.insert(tag).inserted { tags.append(tag) }
            guard tags.count <= 1000 else { throw AzureError("\(path) holds too many tags") }
        }
        return tags
    }

    /// - Returns: The time as sent, with a zone.
    package static func time(_ value: JSONValue, _ path: String) throws(AzureError) -> String {
        guard let text = value.string, text.utf8.count <= 64, instant(text) != nil else {
            throw AzureError("\(path) must be an ISO 8601 time")
        }
        return Instant(iso8601: text) == nil ? text + "Z" : text
    }

    /// Parses a time; without a zone it is in UTC.
    package static func instant(_ text: String) -> Instant? {
        Instant(iso8601: text) ?? Instant(iso8601: text + "Z")
    }
}

extension JSONObject {
    /// The object without members that are null.
    package var filtered: JSONObject {
        JSONObject(filter { !$0.value.isNull }.map { ($0.key, $0.value) })
    }
}
