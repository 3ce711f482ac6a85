package import PushCore

/// A date and time that the clocks of one zone show, with its instant: when they show it first, or, if a
/// change of the clocks skips it, the time by the clocks before the change.
package struct ZonedTime: Sendable, Equatable {
    /// How often the clocks show a time.
    package enum Occurrence: Sendable {
        case once
        /// They are set back over it.
        case twice
        /// They are set forward over it.
        case never
    }

    package let instant: Instant
    package let occurrence: Occurrence

    /// Makes the time; `nil` if the zone is unknown.
    ///
    /// - Parameters:
    ///   - time: The date and time.
    ///   - zone: The name of a zone in the machine's database, as `Europe/Berlin`.
    package init?(_ time: LocalDateTime, in zone: String) {
        var zones = TimeZones()
        guard let rules = zones.zone(zone) else { return nil }
        instant = rules.instant(of: time)
        let (shown, first) = (time.inUTC.seconds, instant.seconds)
        guard first + rules.offset(at: first) == shown else {
            occurrence = .never
            return
        }
        let later = shown - rules.offset(at: first + 86_400)
        occurrence =
            later > first && later + rules.offset(at: later) == shown ? .twice : .once
    }

    /// The names of the machine's zones, sorted; empty without its database.
    package static let zones: [String] = {
        let lines = TimeZones.table.split(separator: UInt8(ascii: "\n"))
        let names = lines.compactMap { line -> String? in
            let fields = line.split(separator: UInt8(ascii: "\t"))
            guard fields.count >= 3, fields[0].first != UInt8(ascii: "#") else { return nil }
            return String(decoding: fields[2], as: UTF8.self)
        }
        return names.sorted()
    }()
}
