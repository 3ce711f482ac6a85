package import JSON

/// The JSON of Firebase's SDK for iOS: one object with unquoted keys, and strings in single quotes
/// without any escape; JSON members (custom signals, user properties) are strict JSON.
///
/// A string ends at a quote that is followed by a comma or a closing brace; other quotes are part of
/// it. Linear in the bytes: each is read at most three times.
package enum RelaxedJSON {
    private static let maximumMembers = 1000

    /// - Throws: `RelaxedJSONError` with the position and the expected token.
    package static func parse(_ bytes: [UInt8]) throws(RelaxedJSONError) -> JSONValue {
        var reader = Reader(bytes: bytes)
        return .object(try reader.document())
    }

    private struct Reader {
        let bytes: [UInt8]
        var place = 0

        mutating func document() throws(RelaxedJSONError) -> JSONObject {
            var object = JSONObject()
            try expect("{")
            skipBlanks()
            if !take("}") {
                var members = 0
                repeat {
                    let key = try key()
                    try expect(":")
                    object[key] = try value()
                    members += 1
                    guard members <= RelaxedJSON.maximumMembers else {
                        throw error("fewer members")
                    }
                    skipBlanks()
                } while take(",")
                try expect("}")
            }
            skipBlanks()
            guard place == bytes.count else { throw error("nothing after the object") }
            return object
        }

        private mutating func key() throws(RelaxedJSONError) -> String {
            skipBlanks()
            if let byte = peek, byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'") {
                place += 1
                let start = place
                while let next = peek, next != byte { place += 1 }
                let text = try text(start..<place)
                guard place < bytes.count else { throw error("the closing quote") }
                place += 1
                return text
            }
            let start = place
            while let byte = peek, Self.isOfKey(byte) { place += 1 }
            guard place > start else { throw error("a key") }
            return try text(start..<place)
        }

        private static func isOfKey(_ byte: UInt8) -> Bool {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                48...57, UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "."),
                UInt8(ascii: "$"):
                true
            default: false
            }
        }

        private mutating func value() throws(RelaxedJSONError) -> JSONValue {
            skipBlanks()
            if take("'") { return .string(try quoted()) }
            let start = place
            skipStrict()
            do throws(JSONError) {
                return try JSONValue.parse(
                    Array(bytes[start..<place]),
                    maximumDepth: 16,
                    maximumBytes: ConfigFetch.maximumBytes
                )
            } catch {
                throw RelaxedJSONError(expected: "a value", at: start)
            }
        }

        /// Reads the rest of a string after the opening quote.
        private mutating func quoted() throws(RelaxedJSONError) -> String {
            let start = place
            while place < bytes.count {
                guard bytes[place] == UInt8(ascii: "'") else {
                    place += 1
                    continue
                }
                let end = place
                place += 1
                // The next quote follows these blanks, so each blank is skipped only once.
                skipBlanks()
                if let byte = peek, byte == UInt8(ascii: ",") || byte == UInt8(ascii: "}") {
                    return try text(start..<end)
                }
            }
            throw error("the closing quote")
        }

        /// Skips a value of strict JSON, up to the comma or the closing brace of this object. The
        /// value is parsed separately.
        private mutating func skipStrict() {
            var depth = 0
            while let byte = peek {
                switch byte {
                case UInt8(ascii: "\""):
                    place += 1
                    while let inner = peek, inner != UInt8(ascii: "\"") {
                        place += inner == UInt8(ascii: "\\") ? 2 : 1
                    }
                case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
                case UInt8(ascii: "}"), UInt8(ascii: "]"):
                    if depth == 0 { return }
                    depth -= 1
                case UInt8(ascii: ",") where depth == 0: return
                default: break
                }
                place += 1
            }
            place = min(place, bytes.count)
        }

        private func text(_ range: Range<Int>) throws(RelaxedJSONError) -> String {
            guard let text = String(validating: bytes[range], as: UTF8.self),
                CombiningMarkRun.isWithin(text)
            else { throw error("valid UTF-8") }
            return text
        }

        // MARK: Parts

        private var peek: UInt8? { place < bytes.count ? bytes[place] : nil }

        private mutating func skipBlanks() {
            while let byte = peek, byte == 0x20 || (0x09...0x0D).contains(byte) { place += 1 }
        }

        private mutating func take(_ mark: Unicode.Scalar) -> Bool {
            guard peek == UInt8(ascii: mark) else { return false }
            place += 1
            return true
        }

        private mutating func expect(_ mark: Unicode.Scalar) throws(RelaxedJSONError) {
            skipBlanks()
            guard take(mark) else { throw error("'\(mark)'") }
        }

        private func error(_ expected: String) -> RelaxedJSONError {
            RelaxedJSONError(expected: expected, at: place)
        }
    }
}

/// The reason why a body is not relaxed JSON either: the position and the expected token, never the content.
package struct RelaxedJSONError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(expected: String, at place: Int) { description = "byte \(place): expected \(expected)" }
}
