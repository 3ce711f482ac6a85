import JSON
import PushCore

/// The columns of a CSV file, by the fields of an installation that they fill.
package struct CSVMapping: Sendable, Equatable {
    /// The fields by column, in the order of the columns; `nil`: the column is skipped.
    package let fields: [String?]

    /// The value of a mapping that skips a column.
    package static let skip = "skip"

    /// The usual names of columns, in lower case without separators, and the field of each.
    private static let usual: [String: String] = [
        "id": "objectId", "objectid": "objectId", "installationid": "installationId",
        "deviceid": "installationId", "token": "token", "pushtoken": "token",
        "devicetoken": "deviceToken", "apnstoken": "deviceToken",
        "registrationid": "registrationId", "registrationtoken": "registrationId",
        "fcmtoken": "registrationId", "gcmtoken": "registrationId",
        "subscriptionuri": "subscriptionUri", "channeluri": "subscriptionUri",
        "platform": "deviceType", "os": "deviceType", "devicetype": "deviceType",
        "user": "identity", "userid": "identity", "externalid": "identity",
        "externaluserid": "identity", "identity": "identity",
        "tags": "channels", "topics": "channels", "channels": "channels",
        "timezone": "timeZone", "language": "localeIdentifier", "locale": "localeIdentifier",
        "localeidentifier": "localeIdentifier", "badge": "badge", "valid": "valid",
        "createdat": "createdAt", "created": "createdAt", "updatedat": "updatedAt",
        "updated": "updatedAt", "lastactive": "updatedAt", "lastseen": "updatedAt",
        "apnstopic": "apnsTopic", "bundleid": "apnsTopic",
        "apnsenvironment": "apnsEnvironment", "environment": "apnsEnvironment",
    ]

    /// The fields that a page offers for a column.
    package static let choices: [String] = [
        "token", "deviceToken", "registrationId", "subscriptionUri", "installationId", "objectId",
        "deviceType", "identity", "channels", "timeZone", "localeIdentifier", "badge", "valid",
        "createdAt", "updatedAt", "apnsTopic", "apnsEnvironment",
    ]

    /// Returns the field that a column fills if nobody chooses one: `skip` if its name cannot be a field.
    package static func usualField(of column: String) -> String {
        let field = usual[folded(column)] ?? column
        return field == "token" || FieldName.problem(field) == nil ? field : skip
    }

    /// Maps the columns of a header.
    ///
    /// - Parameters:
    ///   - header: The names of the columns.
    ///   - given: The fields by column that the operator names; the others have their usual fields, or the
    ///     field of their own name.
    /// - Throws: `ImportError` that names the column.
    package init(header: [String], given: [String: String]) throws(ImportError) {
        guard header.count <= ImportLimits.columns else {
            throw ImportError(
                .unusable,
                "the header line has more than \(ImportLimits.columns) columns"
            )
        }
        var seen: Set<String> = []
        var fields: [String?] = []
        for column in header {
            let field = given[column] ?? Self.usual[Self.folded(column)] ?? column
            guard field != Self.skip else {
                fields.append(nil)
                continue
            }
            if field != "token", let problem = FieldName.problem(field) {
                throw ImportError(
                    .unusable,
                    "the column \"\(column)\" cannot be a field: \(problem.description); map it"
                        + " to one (--map \"\(column)=field\"), or skip it (--map \"\(column)=skip\")"
                )
            }
            guard seen.insert(field).inserted else {
                throw ImportError(.unusable, "two columns fill the field \(field); map one of them")
            }
            fields.append(field)
        }
        for column in given.keys.sorted() where !header.contains(column) {
            throw ImportError(
                .unusable,
                "--map names \"\(column)\", which is not in the header line"
            )
        }
        guard !seen.isDisjoint(with: Self.addresses) else {
            throw ImportError(
                .unusable,
                "no column has a device's address; map one to token, deviceToken, registrationId,"
                    + " subscriptionUri or installationId"
            )
        }
        self.fields = fields
    }

    private static let addresses: Set<String> = [
        "token", "deviceToken", "registrationId", "subscriptionUri", "installationId",
    ]

    private static func folded(_ column: String) -> String {
        String(column.lowercased().filter { !"_- .".contains($0) })
    }
}

/// A record of a CSV file (RFC 4180).
enum CSVRecord {
    /// Splits a record into its values.
    ///
    /// - Throws: `Rejection` for invalid UTF-8, or for quotation marks in the wrong place.
    static func values(_ bytes: [UInt8]) throws(Rejection) -> [String] {
        let (comma, quote) = (UInt8(ascii: ","), UInt8(ascii: "\""))
        var bytes = bytes[...]
        if bytes.last == 0x0d { bytes.removeLast() }
        var values: [String] = []
        var value: [UInt8] = []
        var index = bytes.startIndex
        while true {
            value.removeAll(keepingCapacity: true)
            if index < bytes.endIndex, bytes[index] == quote {
                index += 1
                while true {
                    guard index < bytes.endIndex else {
                        throw Rejection("a quotation mark is not closed")
                    }
                    if bytes[index] == quote {
                        index += 1
                        guard index < bytes.endIndex, bytes[index] == quote else { break }
                    }
                    value.append(bytes[index])
                    index += 1
                }
                guard index == bytes.endIndex || bytes[index] == comma else {
                    throw Rejection("text follows a closing quotation mark")
                }
            } else {
                while index < bytes.endIndex, bytes[index] != comma {
                    guard bytes[index] != quote else {
                        throw Rejection(
                            "a quotation mark is inside a value without quotation marks"
                        )
                    }
                    value.append(bytes[index])
                    index += 1
                }
            }
            guard let text = String(validating: value, as: UTF8.self) else {
                throw Rejection("invalid UTF-8")
            }
            values.append(text)
            guard index < bytes.endIndex else { return values }
            index += 1
        }
    }

    static func fields(_ bytes: [UInt8], _ mapping: CSVMapping) throws(Rejection) -> RecordFields {
        let values = try values(bytes)
        guard values.count == mapping.fields.count else {
            throw Rejection("the number of values is not that of the header line")
        }
        var record = RecordFields(body: [:], rule: .leanCloud)
        var token: String?
        for case (let field?, let text) in zip(mapping.fields, values) where !text.isEmpty {
            switch field {
            case "objectId": record.objectID = text
            case "createdAt": record.createdAt = try time(text, field)
            case "updatedAt": record.updatedAt = try time(text, field)
            case "token": token = text
            default: record.body[field] = try value(text, of: field)
            }
        }
        try record.setPlatform(token: token)
        if record.body["valid"]?.bool == false {
            record.body["valid"] = true
            record.invalidReason = Installation.inactiveReason
        }
        return record
    }

    /// Reads a time: ISO 8601, or seconds or milliseconds since 1970.
    private static func time(_ text: String, _ field: String) throws(Rejection) -> Instant? {
        if let number = Int64(text), number < 100_000_000_000 { return Instant(seconds: number) }
        return try RecordValue.time(.string(text), field)
    }

    /// Converts a text to the type of its field. The app's own fields are strings.
    private static func value(_ text: String, of field: String) throws(Rejection) -> JSONValue {
        switch FieldType.fixed(field, of: "_Installation") {
        case .number?:
            guard let number = Int64(text) else {
                throw Rejection("\(field) must be a whole number")
            }
            return .integer(number)
        case .boolean?:
            switch text.lowercased() {
            case "true", "t", "yes", "1": return true
            case "false", "f", "no", "0": return false
            default: throw Rejection("\(field) must be true or false")
            }
        case .array?: return try list(text, field)
        case .object?: throw Rejection("\(field) cannot be a column")
        default: return .string(text)
        }
    }

    /// Reads a JSON array, or names divided by `;`, `|` or blanks.
    private static func list(_ text: String, _ field: String) throws(Rejection) -> JSONValue {
        if text.hasPrefix("[") {
            guard let list = (try? JSONValue.parse(text, maximumDepth: 2))?.array else {
                throw Rejection("\(field) must be a JSON array, or names divided by ;")
            }
            return .array(list)
        }
        let names = text.split { ";| ".contains($0) }
        return .array(names.map { .string(String($0)) })
    }
}

extension RecordFields {
    /// The names of platforms that are not names of device types.
    private static let platforms: [String: String] = [
        "ios": "ios", "iphone": "ios", "ipad": "ios", "ipados": "ios", "apns": "ios",
        "apple": "ios", "android": "android", "fcm": "android", "gcm": "android",
        "wns": "windows", "uwp": "windows", "mpns": "wp", "windowsphone": "wp",
    ]

    /// Sets the field of a token that is only named `token`, by the platform.
    fileprivate mutating func setPlatform(token: String?) throws(Rejection) {
        if let type = body["deviceType"]?.string, let known = Self.platforms[type.lowercased()] {
            body["deviceType"] = .string(known)
        }
        guard let token else { return }
        switch body["deviceType"]?.string?.lowercased() {
        case "android": body["registrationId"] = .string(token)
        case "windows", "winrt", "wp": body["subscriptionUri"] = .string(token)
        case nil: throw Rejection("deviceType is missing, which says whose the token is")
        default: body["deviceToken"] = .string(token)
        }
    }
}
