package import JSON
package import PushCore

/// The properties of an app instance, from the body of a fetch or a stream.
///
/// The SDKs use two styles of names, and iOS its own form of JSON; see `RelaxedJSON`. In each form,
/// only the members that conditions use become values; all others are checked and ignored.
package struct ConfigFetch: Sendable {
    package static let maximumBytes = 256 << 10
    /// Limits of custom signals, and of user properties, for which Google's own are lower.
    package static let maximumSignals = 100
    package static let maximumSignalKeyLength = 250
    package static let maximumSignalLength = 500
    /// The limit of an id, a version or another string about the instance itself, in bytes.
    package static let maximumTextBytes = 1024

    /// `nil` if it is absent or empty. The same holds for the other properties.
    package private(set) var appInstanceID: String?
    package private(set) var appID: String?
    package private(set) var appVersion: String?
    package private(set) var appBuild: String?
    package private(set) var countryCode: String?
    package private(set) var languageCode: String?
    package private(set) var firstOpenTime: Instant?
    /// The version that a stream's client has: 0 to 2⁵³.
    package private(set) var lastKnownVersion: Int?
    package private(set) var userProperties: JSONObject = [:]
    package private(set) var customSignals: JSONObject = [:]

    /// Makes an instance without properties.
    package init() {}

    /// - Parameter body: The decompressed body.
    /// - Throws: `ConfigFetchError` if it is neither JSON nor relaxed JSON, or exceeds a limit.
    package init(body: [UInt8]) throws(ConfigFetchError) {
        guard body.count <= Self.maximumBytes else {
            throw ConfigFetchError("the body has more than \(Self.maximumBytes) bytes")
        }
        do {
            self = try Self.strict(body)
        } catch {
            self = try Self.relaxed(body)
        }
        try check()
    }

    private static func strict(_ body: [UInt8]) throws(JSONError) -> ConfigFetch {
        var fetch = ConfigFetch()
        try JSONReader.visit(body, maximumDepth: 16, maximumBytes: maximumBytes) {
            reader throws(JSONError) in
            let isObject = try reader.object { key, reader throws(JSONError) in
                guard let field = Field(key) else { return }
                fetch.set(field, try reader.tree())
            }
            // Then the relaxed parser reports the error.
            guard isObject else { throw JSONError(offset: 0, line: 1, expected: .key) }
        }
        return fetch
    }

    private static func relaxed(_ body: [UInt8]) throws(ConfigFetchError) -> ConfigFetch {
        let tree: JSONValue
        do throws(RelaxedJSONError) {
            tree = try RelaxedJSON.parse(body)
        } catch {
            throw ConfigFetchError("the body is not JSON: \(error.description)")
        }
        guard let object = tree.object else { throw ConfigFetchError("the body is not an object") }
        var fetch = ConfigFetch()
        for (name, value) in object {
            if let field = Field(name) { fetch.set(field, value) }
        }
        return fetch
    }

    private mutating func set(_ field: Field, _ value: JSONValue) {
        switch field {
        case .appInstanceID: appInstanceID = Self.text(value)
        case .appID: appID = Self.text(value)
        case .appVersion: appVersion = Self.text(value)
        case .appBuild: appBuild = Self.text(value)
        case .countryCode: countryCode = Self.text(value)
        case .languageCode: languageCode = Self.text(value)
        case .firstOpenTime:
            // Android writes UTC, with its Z; a time without a zone is read as UTC.
            firstOpenTime = Self.text(value).flatMap {
                Instant(iso8601: $0) ?? LocalDateTime(iso8601: $0)?.inUTC
            }
        case .lastKnownVersion:
            lastKnownVersion = (value.integer ?? value.string.flatMap { Int($0) }).flatMap {
                (0...(1 << 53)).contains($0) ? $0 : nil
            }
        case .userProperties: userProperties = value.object ?? [:]
        case .customSignals: customSignals = value.object ?? [:]
        }
    }

    /// Returns a string, or the digits of a number; `nil` for an empty one.
    static func text(_ value: JSONValue) -> String? {
        switch value {
        case .string(let text): text.isEmpty ? nil : text
        case .integer(let number): String(number)
        case .double(let number): String(number)
        case .number(let text): text
        case .null, .bool, .array, .object: nil
        }
    }

    private func check() throws(ConfigFetchError) {
        try Self.check(appInstanceID)
        try Self.check(appID)
        try Self.check(appVersion)
        try Self.check(appBuild)
        try Self.check(countryCode)
        try Self.check(languageCode)
        try Self.check(customSignals, "custom signal")
        try Self.check(userProperties, "user property")
    }

    private static func check(_ text: String?) throws(ConfigFetchError) {
        guard var text else { return }
        guard text.utf8.count <= maximumTextBytes, text.withUTF8({ unsafe !$0.contains(0) }) else {
            throw ConfigFetchError("a string exceeds \(maximumTextBytes) bytes, or has a NUL")
        }
    }

    private static func check(_ values: JSONObject, _ name: String) throws(ConfigFetchError) {
        guard values.count <= maximumSignals else {
            throw ConfigFetchError("more than \(maximumSignals) values: \(name)")
        }
        for (key, value) in values {
            guard has(key, atMost: maximumSignalKeyLength),
                value.string.map({ has($0, atMost: maximumSignalLength) }) ?? true
            else {
                throw ConfigFetchError(
                    "a \(name)'s key has more than \(maximumSignalKeyLength) characters, or its value"
                        + " more than \(maximumSignalLength)"
                )
            }
        }
    }

    /// Whether a string has at most this many characters. They are counted only if it has more
    /// bytes.
    private static func has(_ text: String, atMost length: Int) -> Bool {
        text.utf8.count <= length || text.scalarCount <= length
    }

    /// The members that are read, by the names of Android and of the others.
    private enum Field {
        case appInstanceID, appID, appVersion, appBuild, countryCode, languageCode, firstOpenTime
        case lastKnownVersion, userProperties, customSignals

        private static let names: [(StaticString, Field)] = [
            ("appInstanceId", .appInstanceID), ("app_instance_id", .appInstanceID),
            ("appId", .appID), ("app_id", .appID),
            ("appVersion", .appVersion), ("app_version", .appVersion),
            ("appBuild", .appBuild), ("app_build", .appBuild),
            ("countryCode", .countryCode), ("country_code", .countryCode),
            ("languageCode", .languageCode), ("language_code", .languageCode),
            ("firstOpenTime", .firstOpenTime), ("first_open_time", .firstOpenTime),
            ("lastKnownVersionNumber", .lastKnownVersion),
            ("last_known_version_number", .lastKnownVersion),
            ("analyticsUserProperties", .userProperties),
            ("analytics_user_properties", .userProperties),
            ("customSignals", .customSignals), ("custom_signals", .customSignals),
        ]

        /// The range of names for each length, so that most keys are compared with one name or
        /// none.
        private static let ofLength: [Range<Int>] = {
            let longest = sorted.map(\.0.utf8CodeUnitCount).max() ?? 0
            return (0...longest).map { length in
                let start = sorted.count { $0.0.utf8CodeUnitCount < length }
                return start..<(start + sorted.count { $0.0.utf8CodeUnitCount == length })
            }
        }()

        private static let sorted = names.sorted { $0.0.utf8CodeUnitCount < $1.0.utf8CodeUnitCount }

        init?(_ key: borrowing JSONKey) {
            let length = key.byteCount
            guard length < Self.ofLength.count else { return nil }
            for place in Self.ofLength[length] where key.isEqual(to: Self.sorted[place].0) {
                self = Self.sorted[place].1
                return
            }
            return nil
        }

        init?(_ name: String) {
            let utf8 = name.utf8
            for (known, field) in Self.names
            where utf8.count == known.utf8CodeUnitCount
                && known.withUTF8Buffer({ unsafe utf8.elementsEqual($0) })
            {
                self = field
                return
            }
            return nil
        }
    }
}

/// The reason why a fetch's body is invalid. Safe to show.
package struct ConfigFetchError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(_ description: String) { self.description = description }
}
