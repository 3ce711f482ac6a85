import JSON

/// What a body says of who sends it, read before anything else of it is: no tree is built, and the
/// caller is still a stranger.
///
/// The body is passed over once, within bounds of depth and of values, as the words may stand at
/// its end: SDKs add them to an object that is there already.
package struct BodyCredentials: Sendable {
    private var words: TextMap<JSONValue> = [:]

    /// Reads the members of these names at the top of a JSON object, the last of each.
    ///
    /// - Returns: `nil` for what is no JSON object, or is more of it than a body may be.
    package init?(_ body: [UInt8], named names: [StaticString]) {
        var found: TextMap<JSONValue> = [:]
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

    /// Whether it is there, whatever its value is.
    package func has(_ name: String) -> Bool { words[name] != nil }

    package func text(_ name: String) -> String? { words[name]?.string }
}

/// How much JSON a body may be beside its bytes: compressed, 16 KB of it can be millions of arrays.
package enum BodyLimits {
    package static let depth = 32
    /// Of a batch of 1,000 objects, 200 values each.
    package static let values = 200_000
    /// Of whoever has the app key alone, which every shipped app carries: 32 values each. A compressed
    /// body of nothing but values holds its loop for some milliseconds then.
    package static let valuesOfClients = 32_000
    /// Of a body of at most 64 KB.
    package static let valuesOfSmall = 20_000

    package static func values(forMaster isMaster: Bool) -> Int {
        isMaster ? values : valuesOfClients
    }
}
