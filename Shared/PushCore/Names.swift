/// The rule for an app's id. The id becomes a path segment, part of a key, and Azure's hub name.
package enum AppID {
    /// The first path segments of Carillon's own routes. No app's id may be one of them.
    package static let reserved: Set<String> = [
        "1.1", "api", "app", "console", "events", "identitypools", "livez", "metrics", "oauth2",
        "openapi.json", "parse", "readyz", "v1",
    ]

    /// Returns why an id for a new app is invalid; `nil` if it is valid.
    package static func problem(_ id: String) -> String? {
        guard isWellFormed(id) else {
            return "an app's id is 1 to 64 of the letters A-Z, a-z, digits, '.', '_' and '-'"
        }
        guard !reserved.contains(folded(id)) else {
            return "'\(id)' begins a route of Carillon's and cannot be an app's id"
        }
        return nil
    }

    package static func isWellFormed(_ id: String) -> Bool {
        (1...64).contains(id.utf8.count)
            && id.utf8.allSatisfy { ASCII.isAlphanumeric($0) || ".-_".utf8.contains($0) }
    }

    /// Returns the form that must be unique: case is ignored.
    package static func folded(_ id: String) -> String { id.lowercased() }
}

/// The rule for channel names (LeanCloud's code 112): letters, digits, `_`, `-`, `=`, CJK.
/// The empty name is LeanCloud's broadcast channel.
package enum ChannelName {
    package static let maximumBytes = 256

    /// Whether a name can be stored and selected. Parse Server has no further rule, so its apps
    /// have names such as `user:1` and `news.sport`.
    package static func isStorable(_ name: String) -> Bool {
        name.utf8.count <= maximumBytes && !name.utf8.contains(0)
    }

    /// Whether a name obeys LeanCloud's rule.
    package static func isValid(_ name: String) -> Bool {
        name.utf8.count <= maximumBytes
            && name.unicodeScalars.allSatisfy { scalar in
                if scalar.isASCII {
                    return ASCII.isAlphanumeric(UInt8(scalar.value))
                        || scalar == "_" || scalar == "-" || scalar == "="
                }
                let properties = scalar.properties
                return properties.isAlphabetic || properties.isIdeographic
                    || properties.generalCategory == .decimalNumber
                    || properties.generalCategory == .nonspacingMark
                    || properties.generalCategory == .spacingMark
            }
    }
}

/// The rule for the names of fields that apps add: LeanCloud's and Parse's.
package enum FieldName {
    private static let maximumBytes = 128

    /// Names with a special meaning in JavaScript, for programs that use an object's keys
    /// unchecked. They are refused in paths, too.
    package static let reserved: Set<String> = ["__proto__", "constructor", "prototype"]

    /// Returns why a name is invalid; `nil` if it is valid. Names that begin with `_` belong to the
    /// service.
    package static func problem(_ name: String) -> InstallationError? {
        if name.utf8.contains(UInt8(ascii: "$")) {
            return InstallationError(code: 121, "a field's name must not contain '$'")
        }
        guard let first = name.utf8.first, ASCII.isLetter(first),
            name.utf8.count <= maximumBytes, !reserved.contains(name),
            name.utf8.allSatisfy({ ASCII.isAlphanumeric($0) || $0 == UInt8(ascii: "_") })
        else {
            return InstallationError(
                code: 105,
                "a field's name is a letter followed by letters, digits and '_', and none of "
                    + reserved.sorted().joined(separator: ", ")
            )
        }
        return nil
    }
}

/// The checks of device tokens that are possible without their provider.
package enum DeviceToken {
    /// Returns why a token is invalid; `nil` if it is valid. Never contains the token.
    package static func problem(_ token: String, for platform: Platform) -> String? {
        switch platform {
        case .apns:
            // The token becomes a path segment. Apple says not to assume a length.
            guard (1...512).contains(token.utf8.count), ASCII.isAlphanumeric(token) else {
                return "an APNs device token is 1 to 512 letters and digits"
            }
        case .fcm:
            guard (1...4096).contains(token.utf8.count),
                token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
            else { return "an FCM registration token is 1 to 4096 printable ASCII characters" }
        case .wns, .mpns:
            guard (8...2048).contains(token.utf8.count),
                token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }),
                token.hasPrefix("https://") || token.hasPrefix("http://")
            else { return "a channel URI is an absolute http or https URL of at most 2048 bytes" }
        case .connection:
            return "a device with a connection of its own is selected by its installation"
        }
        return nil
    }
}

extension DeviceToken {
    /// Returns the form in which a token is stored and compared: APNs' hexadecimal digits in lower case.
    package static func canonical(_ token: String, for platform: Platform) -> String {
        switch platform {
        case .apns: token.lowercased()
        case .fcm, .wns, .mpns, .connection: token
        }
    }
}

package enum ASCII {
    /// Whether all bytes are letters or digits. It reads them in place, as it is called for every
    /// token that is sent to.
    static func isAlphanumeric(_ text: String) -> Bool {
        unsafe text.utf8.withContiguousStorageIfAvailable { bytes in
            var index = 0
            while index < bytes.count {
                guard isAlphanumeric(unsafe bytes[index]) else { return false }
                index += 1
            }
            return true
        } ?? text.utf8.allSatisfy { isAlphanumeric($0) }
    }

    package static func isLetter(_ byte: UInt8) -> Bool {
        (65...90).contains(byte) || (97...122).contains(byte)
    }

    package static func isAlphanumeric(_ byte: UInt8) -> Bool {
        (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte)
    }
}

/// An installation's object id: 24 lower-case hexadecimal digits. The ids are ordered by time, so
/// that pages of installations can follow one another.
package enum ObjectID {
    package static func make(at now: Instant, random: UInt64) -> String {
        let seconds = UInt32(clamping: now.seconds)
        return hex(UInt64(seconds), 8) + hex(random, 16)
    }

    package static func isWellFormed(_ id: String) -> Bool {
        id.utf8.count == 24
            && id.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
    }

    private static func hex(_ value: UInt64, _ width: Int) -> String {
        let digits = String(value, radix: 16)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}

/// Derived ids: the same event or delivery always has the same id.
package enum PushIdentity {
    /// The source of a push that came over HTTP; its id is random.
    package static let httpSource = "carillon/http"
    /// The source of a push that announces a version of remote config.
    package static let configSource = "carillon/config"
    /// The source of a push that announces a secure payload.
    package static let secureSource = "carillon/secure"
    /// The source of a push that announces a dataset's change.
    package static let syncSource = "carillon/sync"

    /// Whether the source is that of a push over HTTP, on any surface. Such a push is stored before
    /// its record comes to Kafka.
    package static func isOwn(source: String) -> Bool {
        source.utf8.starts(with: "carillon/".utf8) && !source.utf8.starts(with: "carillon/cli".utf8)
    }

    /// Whether a push of this source includes its id, if its app has `receipts` on. Pushes for a
    /// secure payload, a dataset or remote config do not.
    package static func includesPushID(source: String) -> Bool {
        let bytes = source.utf8
        return ![configSource, secureSource, syncSource].contains { bytes.elementsEqual($0.utf8) }
    }

    /// Returns the id of the push that an event becomes. The same (app, source, id) is the same push.
    package static func pushID(
        app: String,
        source: String,
        eventID: String,
        digest: Digest
    ) -> String {
        uuid(["push", app, source, eventID], digest)
    }

    /// Returns the target of a bare token, as in the ledger and on `push.outcomes`.
    package static func tokenHash(_ token: String, digest: Digest) -> String {
        hex(digest(Array(token.utf8)))
    }

    /// Makes a UUID of version 8 (RFC 9562 section 5.8) from the first 16 bytes of a hash.
    private static func uuid(_ parts: [String], _ digest: Digest) -> String {
        var input: [UInt8] = []
        for (index, part) in parts.enumerated() {
            if index > 0 { input.append(0) }
            input.append(contentsOf: part.utf8)
        }
        return uuidText(digest(input))
    }

    /// Formats a UUID from the first 16 bytes. Missing bytes are zeroes.
    package static func uuidText(_ bytes: [UInt8]) -> String {
        unsafe String(unsafeUninitializedCapacity: 36) { text in
            var end = 0
            for index in 0..<16 {
                var byte = index < bytes.count ? bytes[index] : 0
                if index == 6 { byte = byte & 0x0f | 0x80 }
                if index == 8 { byte = byte & 0x3f | 0x80 }
                // A dash comes before the bytes 4, 6, 8 and 10.
                if index >= 4, index <= 10, index & 1 == 0 {
                    unsafe text[end] = UInt8(ascii: "-")
                    end += 1
                }
                unsafe text[end] = hexDigit(byte >> 4)
                unsafe text[end + 1] = hexDigit(byte & 15)
                end += 2
            }
            return end
        }
    }

    /// Returns the first and the last id with this prefix; `nil` if no id can have it.
    package static func range(beginning text: String) -> (first: String, last: String)? {
        let pattern = "00000000-0000-0000-0000-000000000000"
        guard text.utf8.count <= pattern.utf8.count, text.utf8.allSatisfy({ $0 < 0x80 }) else {
            return nil
        }
        let first = text + pattern.dropFirst(text.utf8.count)
        let rest = pattern.dropFirst(text.utf8.count).map { $0 == "0" ? "f" : $0 }
        return isUUID(first) ? (first, text + String(rest)) : nil
    }

    package static func isUUID(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        return bytes.count == 36
            && bytes.indices.allSatisfy { index in
                [8, 13, 18, 23].contains(index)
                    ? bytes[index] == UInt8(ascii: "-") : isHexDigit(bytes[index])
            }
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
        (48...57).contains(byte) || (65...70).contains(byte) || (97...102).contains(byte)
    }

    private static func hexDigit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") - 10 + value
    }

    private static func hex(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        text.reserveCapacity(bytes.count * 2)
        for byte in bytes {
            text.append(hexDigit(byte >> 4))
            text.append(hexDigit(byte & 15))
        }
        return String(decoding: text, as: UTF8.self)
    }
}

/// The ids of one push's notifications, `apns-id`: a repeated notification has the same id.
package struct NotificationIDs: Sendable {
    /// A hash function that writes the digest of the first argument into the second.
    package typealias DigestInto = @Sendable ([UInt8], inout [UInt8]) -> Void

    private var input: [UInt8]
    private let prefixCount: Int
    private let digest: DigestInto
    private var output: [UInt8] = []

    package init(pushID: String, digest: @escaping DigestInto) {
        input = Array("delivery".utf8) + [0] + Array(pushID.utf8) + [0]
        prefixCount = input.count
        self.digest = digest
    }

    /// Returns the id for `target`, which is the installation's id or the token's hash.
    package mutating func id(of target: String) -> String {
        input.removeLast(input.count - prefixCount)
        input.append(contentsOf: target.utf8)
        digest(input, &output)
        return PushIdentity.uuidText(output)
    }
}
