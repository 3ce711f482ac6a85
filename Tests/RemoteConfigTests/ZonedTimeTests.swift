import PushCore
import Testing

@testable import RemoteConfig

@Suite("Times in a zone")
struct ZonedTimeTests {
    private func zoned(_ time: String, _ zone: String) throws -> ZonedTime? {
        ZonedTime(try #require(LocalDateTime(iso8601: time)), in: zone)
    }

    @Test("A time that the clocks skip or repeat is named as such, and has one instant")
    func changes() throws {
        for (time, zone, instant, occurrence) in [
            ("2026-12-26T07:30:00", "Europe/Berlin", "2026-12-26T06:30:00.000Z", .once),
            ("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:30:00.000Z", .never),
            ("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00.000Z", .twice),
            ("2026-10-25T03:00:00", "Europe/Berlin", "2026-10-25T02:00:00.000Z", .once),
            ("2026-04-05T01:45:00", "Australia/Lord_Howe", "2026-04-04T14:45:00.000Z", .twice),
            ("2026-07-01T12:00:00", "Asia/Kolkata", "2026-07-01T06:30:00.000Z", .once),
        ] as [(String, String, String, ZonedTime.Occurrence)] {
            let found = try #require(try zoned(time, zone), "\(zone)")
            #expect(found.instant.iso8601 == instant, "\(time) \(zone)")
            #expect(found.occurrence == occurrence, "\(time) \(zone)")
        }
        #expect(try zoned("2026-12-26T07:30:00", "Europe/Nowhere") == nil)
        #expect(try zoned("2026-12-26T07:30:00", "../passwd") == nil)
    }

    @Test("The names of zones are those of the machine, and each is a zone")
    func names() throws {
        #expect(ZonedTime.zones.count > 200 && ZonedTime.zones.contains("Europe/Berlin"))
        for zone in ZonedTime.zones { #expect(try zoned("2026-12-26T07:30:00", zone) != nil) }
    }
}
