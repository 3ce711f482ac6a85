package import JSON

/// The settings that an operator makes for one app: `carillon app set <app> <name>=<value>`.
///
/// Only values that were set are stored; all others have the defaults below. A setting of a later
/// version, or an invalid value, counts as not set.
package struct AppSettings: Sendable, Equatable {
    /// `client-push`: whether the app key may send, list and cancel pushes. Every shipped app
    /// contains the app key, so anyone who unpacks an app could push to all phones. Off by default.
    package var clientsMayPush = false
    /// `client-find`: whether the app key may list and count objects. If off, it may only read an
    /// object by its id.
    package var clientsMayFind = false
    /// `client-delete`: whether the app key may delete objects. Azure's listen key may always
    /// delete the installation whose id it names, as Azure's clients do.
    package var clientsMayDelete = false
    /// `valid-days`: after this many days without contact, an installation becomes invalid.
    package var validDays = 60
    /// `delete-days`: after this many days without contact, an installation is deleted.
    package var deleteDays = 120
    /// `mpns`: whether pushes are sent to Windows Phone's old channels.
    package var sendsToMPNS = true
    /// `connections`: whether pushes are sent to devices that hold a connection to Carillon.
    package var sendsToConnections = true
    /// `requests-per-minute`: the requests that one key of the app may send to one loop of the
    /// registration service; 0: no limit. There is no limit by default, since all devices of an app
    /// share one app key: a limit that is too low locks out all of them.
    package var maximumRequestsPerMinute = 0
    /// `pushes-per-minute`: how many pushes the app may send over HTTP (LeanCloud's own limit is
    /// 600); 0: no limit. Pushes from Kafka are not counted.
    package var maximumPushesPerMinute = 600
    /// `signature-max-age`: how many seconds a signature (`X-LC-Sign`) is valid; 0: for ever. It is
    /// off by default, as shipped clients sign by device clocks that may be wrong.
    package var signatureMaxAgeSeconds = 0
    /// `config-fetches-per-hour`: how often one app instance may fetch remote config from one
    /// process; 0: no limit. If the limit is too low, apps that fetch at each start keep old
    /// values.
    package var configFetchesPerHour = 120

    /// `secure-unnamed`: whether this app gets the requests for secure payloads that name no app.
    /// At most one app can have this setting.
    package var meansUnnamedSecure = false
    /// `secure-ids`: the form of the ids of the app's secure payloads. It can change only while the
    /// app stores none.
    package var secureIDs = SecureIDForm.random
    /// `sync-unsigned`: whether Cognito's clients may send unsigned requests, with an identity's
    /// rights. Then anyone who knows the ids of a pool and an identity can read and write its data.
    package var takesUnsignedSync = false

    /// `ingest-objects-per-minute`: how many objects of the app's devices one process accepts; 0: no
    /// limit.
    package var maximumIngestObjectsPerMinute = 0
    /// `realm-sync`: whether Realm's clients may upload their asymmetric objects.
    package var takesRealmClients = false
    /// `realm-rescue-until`: until which day, in UTC, devices with tokens of Atlas are let in, though
    /// nothing can verify these; `nil`: none are.
    package var realmRescueEnd: String?
    /// `receipts`: whether each push includes its id, as `pushId`. Devices use the id to report
    /// that they received or opened the push.
    package var sendsPushIDs = false

    package init() {}

    /// Whether devices with tokens of Atlas are let in.
    package func rescuesRealmClients(at now: Instant) -> Bool {
        guard let realmRescueEnd else { return false }
        return String(now.iso8601.prefix(10)) < realmRescueEnd
    }

    /// Reads the stored settings.
    package init(_ object: JSONObject) {
        for setting in Self.all {
            if let value = object[setting.name] { setting.read(value, &self) }
        }
    }

    /// The error of an unknown setting or an invalid value.
    package struct InvalidChange: Error, Equatable, Sendable, CustomStringConvertible {
        package let description: String
        package init(description: String) { self.description = description }
    }

    package static var names: [String] { all.map(\.name) }

    /// Parses `name=value` into the change of the stored settings.
    package static func change(_ text: String) throws(InvalidChange) -> JSONObject {
        let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        let name = String(parts[0])
        guard parts.count == 2 else {
            throw InvalidChange(description: "a setting is name=value, as in mpns=off")
        }
        guard let setting = all.first(where: { $0.name == name }) else {
            let names = all.map(\.name).joined(separator: ", ")
            throw InvalidChange(description: "there is no setting \(name); there are \(names)")
        }
        guard let value = setting.value(String(parts[1])) else {
            throw InvalidChange(description: "\(name) must be \(setting.takes)")
        }
        return [name: value]
    }

    /// Every setting with its name and value, in the order in which they are shown.
    package var shown: [(name: String, value: JSONValue)] {
        Self.all.map { ($0.name, $0.show(self)) }
    }

    /// The settings in the form that `change` accepts: `client-push=off`.
    package var lines: [String] {
        shown.map { name, value in
            switch value {
            case .bool(let isOn): "\(name)=\(isOn ? "on" : "off")"
            case .string(let word): "\(name)=\(word)"
            default: "\(name)=\(value.text)"
            }
        }
    }

    /// The setting's name, by which the store of secure payloads finds it.
    package static let secureIDsName = "secure-ids"
    package static let secureUnnamedName = "secure-unnamed"
    /// The setting's name, by which the store of apps finds those that rescue devices.
    package static let realmRescueName = "realm-rescue-until"

    /// One setting: a switch, a whole number within bounds, a choice of words, or a day.
    private enum Setting: Sendable {
        case toggle(String, @Sendable () -> WritableKeyPath<AppSettings, Bool>)
        case number(
            String,
            ClosedRange<Int>,
            @Sendable () -> WritableKeyPath<AppSettings, Int>
        )
        case form(String, @Sendable () -> WritableKeyPath<AppSettings, SecureIDForm>)
        case day(String, @Sendable () -> WritableKeyPath<AppSettings, String?>)

        var name: String {
            switch self {
            case .toggle(let name, _): name
            case .number(let name, _, _): name
            case .form(let name, _), .day(let name, _): name
            }
        }

        var takes: String {
            switch self {
            case .toggle: "on or off"
            case .number(_, let range, _):
                "a whole number, \(range.lowerBound) to \(range.upperBound)"
            case .form: SecureIDForm.allCases.map(\.rawValue).joined(separator: " or ")
            case .day: "off, or a day in UTC: 2027-03-31"
            }
        }

        func value(_ text: String) -> JSONValue? {
            switch self {
            case .toggle:
                switch text {
                case "on": return true
                case "off": return false
                default: return nil
                }
            case .number(_, let range, _):
                guard let number = Int(text), range.contains(number) else { return nil }
                return JSONValue(number)
            case .form: return SecureIDForm(rawValue: text).map { .string($0.rawValue) }
            case .day: return text == "off" || Self.isDay(text) ? .string(text) : nil
            }
        }

        func read(_ value: JSONValue, _ settings: inout AppSettings) {
            switch self {
            case .toggle(_, let path):
                if let isOn = value.bool { settings[keyPath: path()] = isOn }
            case .number(_, let range, let path):
                guard let number = value.integer,
                    range.contains(number)
                else { return }
                settings[keyPath: path()] = number
            case .form(_, let path):
                guard let form = value.string.flatMap(SecureIDForm.init(rawValue:)) else { return }
                settings[keyPath: path()] = form
            case .day(_, let path):
                guard let day = value.string else { return }
                settings[keyPath: path()] = Self.isDay(day) ? day : nil
            }
        }

        /// Whether it is a day of the calendar, as `2027-03-31`.
        private static func isDay(_ text: String) -> Bool {
            guard text.utf8.count == 10, let day = Instant(iso8601: text + "T00:00:00.000Z") else {
                return false
            }
            return day.iso8601.hasPrefix(text)
        }

        func show(_ settings: AppSettings) -> JSONValue {
            switch self {
            case .toggle(_, let path): .bool(settings[keyPath: path()])
            case .number(_, _, let path): JSONValue(settings[keyPath: path()])
            case .form(_, let path): .string(settings[keyPath: path()].rawValue)
            case .day(_, let path): .string(settings[keyPath: path()] ?? "off")
            }
        }
    }

    private static let all: [Setting] = [
        .toggle("client-push") { \.clientsMayPush },
        .toggle("client-find") { \.clientsMayFind },
        .toggle("client-delete") { \.clientsMayDelete },
        .number("valid-days", 1...3650) { \.validDays },
        .number("delete-days", 1...3650) { \.deleteDays },
        .toggle("mpns") { \.sendsToMPNS },
        .toggle("connections") { \.sendsToConnections },
        .number("requests-per-minute", 0...10_000_000) { \.maximumRequestsPerMinute },
        .number("pushes-per-minute", 0...10_000_000) { \.maximumPushesPerMinute },
        .number("signature-max-age", 0...31_536_000) { \.signatureMaxAgeSeconds },
        .number("config-fetches-per-hour", 0...1_000_000) { \.configFetchesPerHour },
        .toggle(secureUnnamedName) { \.meansUnnamedSecure },
        .form(secureIDsName) { \.secureIDs },
        .toggle("sync-unsigned") { \.takesUnsignedSync },
        .number("ingest-objects-per-minute", 0...1_000_000_000) { \.maximumIngestObjectsPerMinute },
        .toggle("receipts") { \.sendsPushIDs },
        .toggle("realm-sync") { \.takesRealmClients },
        .day(realmRescueName) { \.realmRescueEnd },
    ]
}
