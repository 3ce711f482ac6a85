import JSON
import PushCore
import Testing

struct AppSettingsTests {
    @Test("By default the app key may not send, list or delete")
    func defaultsAreSafe() {
        let settings = AppSettings([:])
        #expect(!settings.clientsMayPush && !settings.clientsMayFind && !settings.clientsMayDelete)
        #expect(settings.validDays == 60 && settings.deleteDays == 120)
        #expect(settings.sendsToMPNS && !settings.sendsPushIDs)
        #expect(settings.maximumIngestObjectsPerMinute == 0)
        #expect(settings.maximumRequestsPerMinute == 0 && settings.maximumPushesPerMinute == 600)
    }

    @Test("Each listed setting can be set, and is read back unchanged")
    func everySettingTakesWhatItShows() throws {
        let changes = [
            "client-push=on", "client-find=on", "client-delete=on", "valid-days=90",
            "delete-days=7", "mpns=off", "connections=off", "requests-per-minute=100",
            "pushes-per-minute=0", "signature-max-age=600", "config-fetches-per-hour=0",
            "secure-unnamed=on", "secure-ids=int31", "sync-unsigned=on",
            "ingest-objects-per-minute=5000", "receipts=on", "realm-sync=on",
            "realm-rescue-until=2027-03-31",
        ]
        var stored: JSONObject = [:]
        for text in changes {
            for (name, value) in try AppSettings.change(text) { stored[name] = value }
        }
        #expect(AppSettings(stored).lines == changes)
        #expect(AppSettings([:]).lines.count == changes.count)
        for line in AppSettings([:]).lines { _ = try AppSettings.change(line) }
    }

    @Test(
        "An invalid change is refused with the setting's name and its valid values",
        arguments: [
            ("client-push", "name=value"), ("client-push=yes", "client-push must be on or off"),
            ("mpns=", "mpns must be on or off"),
            ("valid-days=0", "valid-days must be a whole number, 1 to 3650"),
            ("delete-days=many", "delete-days must be a whole number"),
            ("pushes-per-minute=-1", "pushes-per-minute must be a whole number, 0 to"),
            ("secure-ids=int32", "secure-ids must be random or int31"),
            ("secure-unnamed=true", "secure-unnamed must be on or off"),
            ("receipts=1", "receipts must be on or off"),
            ("ingest-objects-per-minute=-1", "ingest-objects-per-minute must be a whole number"),
            ("colour=red", "no setting colour"), ("=", "no setting"),
        ]
    )
    func refusalsNameTheSetting(text: String, named: String) {
        let error = #expect(throws: AppSettings.InvalidChange.self) {
            try AppSettings.change(text)
        }
        #expect(error?.description.contains(named) == true, "\(error?.description ?? "")")
    }

    @Test("A setting of a later version, or with an invalid value, counts as not set")
    func foreignValuesAreNotSet() {
        let settings = AppSettings([
            "valid-days": 0, "delete-days": "7", "mpns": "off", "client-push": 1, "new": true,
            "secure-ids": "hex", "secure-unnamed": "on",
        ])
        #expect(settings == AppSettings())
    }
}
