import Foundation
import PushCore
import Testing

@testable import RemoteConfig

/// Compares our parser of time zones with Foundation's.
@Suite(.timeLimit(.minutes(1)))
struct TimeZoneTests {
    @Test(arguments: [
        "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kathmandu",
        "Pacific/Apia", "America/Sao_Paulo", "Africa/Casablanca", "Asia/Gaza", "America/St_Johns",
        "Europe/Dublin", "Antarctica/Troll", "Pacific/Auckland", "Etc/GMT+5", "EST", "Asia/Tehran",
    ])
    func offsetsAreFoundations(name: String) throws {
        var zones = TimeZones()
        let found = zones.zone(name)
        let rules = try #require(found)
        let zone = try #require(TimeZone(identifier: name))
        // The step is 20 hours and a bit of 1970 to 2090, so all changes are approached from both
        // sides.
        for time in stride(from: 0 as Int64, to: 3_786_912_000, by: 73_009) {
            let wanted = zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(time)))
            // ICU, which Foundation uses, lacks the lunar changes of Gaza and Casablanca after
            // 2037.
            if time > 2_145_916_800, name == "Asia/Gaza" || name == "Africa/Casablanca" { break }
            #expect(rules.offset(at: time) == Int64(wanted), "\(name) at \(time)")
        }
    }

    @Test(arguments: [
        ("Europe/Berlin", "2026-01-15T12:00:00", "2026-01-15T11:00:00Z"),
        ("Europe/Berlin", "2026-07-15T12:00:00", "2026-07-15T10:00:00Z"),
        ("Europe/Berlin", "2090-07-15T12:00:00", "2090-07-15T10:00:00Z"),
        // A skipped time counts as if the clock had not been changed yet.
        ("Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:30:00Z"),
        // A repeated time counts as the first.
        ("Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00Z"),
        ("Europe/Berlin", "2026-10-25T03:00:00", "2026-10-25T02:00:00Z"),
        ("Europe/Berlin", "2026-03-29T03:00:00", "2026-03-29T01:00:00Z"),
        ("America/Los_Angeles", "2022-10-31T14:37:47", "2022-10-31T21:37:47Z"),
        ("Australia/Lord_Howe", "2026-04-05T01:45:00", "2026-04-04T14:45:00Z"),
        // This day did not exist.
        ("Pacific/Apia", "2011-12-31T00:00:00", "2011-12-30T10:00:00Z"),
        ("GMT", "2026-07-15T12:00:00", "2026-07-15T12:00:00Z"),
    ])
    func localTimes(name: String, shown: String, instant: String) throws {
        var zones = TimeZones()
        let found = zones.zone(name)
        let rules = try #require(found)
        let time = try #require(LocalDateTime(iso8601: shown))
        #expect(rules.instant(of: time) == Instant(iso8601: instant))
    }

    @Test func namesStayWithinTheFolder() {
        var zones = TimeZones()
        for name in [
            "", "Europe", "europe/berlin", "Mars/Base", "../zoneinfo/Europe/Berlin",
            "/etc/localtime",
            "Europe/../Europe/Berlin", "zone.tab", "Europe/Berlin\0", "tzdata.zi",
            "A" + String(repeating: "a", count: 100),
        ] {
            #expect(zones.zone(name) == nil)
        }
    }

    @Test func whatIsNoFileOfZonesIsNone() throws {
        let file = [UInt8](try Data(contentsOf: URL(filePath: "/usr/share/zoneinfo/Europe/Berlin")))
        #expect(ZoneRules(file) != nil)
        for count in stride(from: 0, to: file.count - 40, by: 7) {
            #expect(ZoneRules(Array(file[..<count])) == nil)
        }
        // No byte value breaks the parser.
        for place in file.indices {
            var other = file
            other[place] = 0xFF
            _ = ZoneRules(other)?.offset(at: 1_770_000_000)
        }
    }

    /// Rules that no zone has today.
    @Test(arguments: [
        ("AAA3BBB,J60/0,J300", 1_772_334_000, -7200),
        ("AAA3BBB,59/0,300/0", 1_772_323_199, -10800),
        ("<+0330>-3:30", 0, 12_600), ("AAA-1", 5, 3600),
    ])
    func otherRules(text: String, time: Int, offset: Int) throws {
        let rule = try #require(YearlyRule(Array(text.utf8)[...]))
        #expect(rule.offset(at: Int64(time)) == Int64(offset))
    }

    @Test(arguments: [
        "", "A", "CET", "CET-1CEST", "CET-1CEST,M13.1.0,M1.1.0", "CET-999", "<CET-1",
        "CET-1CEST,M3.5.0",
    ])
    func noRules(text: String) { #expect(YearlyRule(Array(text.utf8)[...]) == nil) }
}
