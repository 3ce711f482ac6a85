import JSON

/// The credentials in a body. They are read before the client is authenticated, so nothing else of
/// the body is read, and no tree is built.
///
/// The body is scanned once, within limits of depth and of values, as the members may be at its
/// end: SDKs append them to an existing object.
package struct BodyCredentials: Sendable {
    private var words: ExactStringMap<JSONValue> = [:]

    /// Reads the members of these names at the top level of a JSON object; of several members with
    /// one name, the last.
    ///
    /// - Returns: `nil` if it is not a JSON object, or exceeds the limits of a body.
    package init?(_ body: [UInt8], named names: [StaticString]) {
        var found: ExactStringMap<JSONValue> = [:]
        var isObject = false
        do throws(JSONError) {
            try JSONReader.read(
                body,
                maximumDepth: BodyLimits.depth,
                maximumValues: BodyLimits.values
            ) { reader throws(JSONError) in
                isObject = try reader.object { key, reader throws(JSONError) in
                    for name in names where key.isEqual(to: name) {
                        let text = try reader.string()
                        found["\(name)"] = text.map(JSONValue.string) ?? .null
                        return
                    }
                }
            }
        } catch {
            return nil
        }
        guard isObject else { return nil }
        words = found
    }

    /// Whether the member is present, whatever its value.
    package func has(_ name: String) -> Bool { words[name] != nil }

    package func text(_ name: String) -> String? { words[name]?.string }
}

/// Limits of the JSON in a body, besides its size: 16 KB of compressed JSON can be millions of
/// arrays.
package enum BodyLimits {
    package static let depth = 32
    /// The limit of values, for a batch of 1,000 objects with 200 values each.
    package static let values = 200_000
    /// The limit for holders of the app key alone, which every shipped app contains: 32 values for
    /// each object. A compressed body of nothing but values then blocks its loop for some
    /// milliseconds.
    package static let valuesOfClients = 32_000
    /// The limit for a body of at most 64 KB.
    package static let valuesOfSmall = 20_000

    package static func values(forMaster isMaster: Bool) -> Int {
        isMaster ? values : valuesOfClients
    }
}
