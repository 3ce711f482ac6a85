import InstallationStorage
import JSON
import PushCore

/// Why a record is rejected. Names fields, never contains a value.
struct Rejection: Error, Equatable {
    let reason: String

    init(_ reason: String) { self.reason = reason }
}

/// A record as the fields of an installation, before it is validated.
struct RecordFields {
    /// The fields, as a client of LeanCloud's or Parse's surface would save them.
    var body: JSONObject
    var rule: SaveRule
    /// The object id of the source; `nil` if it has none.
    var objectID: String?
    var createdAt: Instant?
    var updatedAt: Instant?
    /// Why the source sends nothing to the device; `nil` if it does.
    var invalidReason: String?

    static let maximumIDBytes = 64

    /// Validates the fields by the rules of the surface.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - now: The time of the import: a record without times gets it.
    ///   - newID: Makes the id of a record without one.
    /// - Returns: The installation to write.
    /// - Throws: `Rejection`.
    func installation(
        app: String,
        now: Instant,
        newID: () -> String
    ) throws(Rejection) -> ImportedInstallation {
        if let objectID { try Self.check(objectID) }
        let updated = updatedAt ?? createdAt
        if let updated, updated > now.adding(milliseconds: Self.clockMilliseconds) {
            throw Rejection("updatedAt is in the future")
        }
        let created = createdAt ?? updated ?? now
        do {
            let fresh = Installation(app: app, objectID: objectID ?? newID(), at: created)
            let changes = try FieldChanges(rule.withDeviceType(body), to: fresh.object)
            var installation = try fresh.changed(by: changes, now: updated ?? now, rule)
            if let invalidReason {
                installation.isValid = false
                installation.invalidReason = invalidReason
            }
            let keys = try Installation.Keys(changes.object)
            guard objectID != nil || keys.token != nil || keys.installationID != nil else {
                throw Rejection(
                    "a device without an objectId must have a token or an installationId"
                )
            }
            return ImportedInstallation(
                installation: installation,
                keys: keys,
                rule: rule,
                hasOwnID: objectID != nil,
                changedAt: updated,
                uses: changes.uses
            )
        } catch {
            throw Rejection(surface: error)
        }
    }

    /// A source's clock may be ahead of ours by this much.
    private static let clockMilliseconds: Int64 = 86_400_000

    private static func check(_ id: String) throws(Rejection) {
        guard (1...maximumIDBytes).contains(id.utf8.count),
            id.utf8.allSatisfy({ ASCII.isAlphanumeric($0) || "-_".utf8.contains($0) })
        else { throw Rejection("objectId must be 1 to 64 letters, digits, - and _") }
    }
}

extension Rejection {
    /// The reason of a surface's error, whose description names the field and never contains a value.
    init(surface error: any Error) {
        switch error {
        case let error as Rejection: self = error
        case let error as InstallationError: self.init(error.description)
        case let error as ObjectError: self.init(error.description)
        default: self.init("the record cannot be stored")
        }
    }

    init(json error: JSONError) { self.init("invalid JSON: \(error.expected.rawValue)") }
}

/// Reads the parts of records.
enum RecordValue {
    static func object(_ bytes: [UInt8]) throws(Rejection) -> JSONObject {
        let value: JSONValue
        do throws(JSONError) {
            value = try JSONValue.parse(
                bytes,
                maximumDepth: ImportLimits.depth,
                maximumBytes: ImportLimits.recordBytes,
                maximumValues: ImportLimits.values
            )
        } catch {
            throw Rejection(json: error)
        }
        guard let object = value.object else { throw Rejection("the record is not a JSON object") }
        return object
    }

    /// Reads a time: ISO 8601, LeanCloud's `{"__type": "Date"}`, MongoDB's `{"$date": …}`, or
    /// milliseconds since 1970. A time without a zone is in UTC.
    static func time(_ value: JSONValue?, _ field: String) throws(Rejection) -> Instant? {
        guard let value, !value.isNull else { return nil }
        let inner = value["iso"] ?? value["$date"] ?? value
        let text = inner.string ?? inner["$numberLong"]?.string
        if let text, let time = Instant(iso8601: text) ?? Instant(iso8601: text + "Z") {
            return time
        }
        if let milliseconds = text.flatMap({ Int64($0) }) ?? inner.integer.map({ Int64($0) }) {
            return Instant(milliseconds: milliseconds)
        }
        throw Rejection("\(field) must be a time in ISO 8601")
    }
}
