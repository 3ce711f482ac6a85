import AzureHub
import JSON
import PushCore
import Testing

@testable import Registration

@Suite("Azure installations", .timeLimit(.minutes(1)))
struct HubInstallationTests {
    private static let whole: JSONObject = [
        "installationId": "i1", "platform": "APNS", "pushChannel": "ABCDEF", "userId": "u@x",
        "tags": ["a:b", "c"], "pushVariables": ["v": "1"], "expirationTime": .null,
        "templates": [
            "t.1": [
                "body": #"{"aps":{"alert":"$(m)"}}"#, "headers": ["apns-priority": "5"],
                "tags": ["x"],
            ]
        ],
        "somethingNew": 1,
    ]

    private func kept(_ wanted: HubInstallation) throws -> Installation {
        var installation = Installation(app: "shop", objectID: "o", at: .init(milliseconds: 0))
        var object = installation.object
        let changed = wanted.write(to: &object, provider: nil)
        try installation.take(
            object,
            changed: changed,
            now: .init(milliseconds: 1000),
            isChannel: TagName.isValid
        )
        return installation
    }

    @Test("An installation is read back as it was put, each template's name among its tags")
    func roundTrip() throws {
        let installation = try kept(HubInstallation(Self.whole, id: "i1"))
        #expect(installation.platform == .apns)
        #expect(installation.token == "abcdef")
        #expect(installation.identity == "u@x")
        #expect(installation.channels == ["a:b", "c"])
        #expect(
            HubInstallation(installation).object(isExpired: false) == [
                "installationId": "i1", "pushChannel": "ABCDEF", "pushChannelExpired": false,
                "platform": "apns", "expirationTime": "9999-12-31T23:59:59.9999999Z",
                "userId": "u@x", "tags": ["a:b", "c"], "pushVariables": ["v": "1"],
                "templates": [
                    "t.1": [
                        "body": #"{"aps":{"alert":"$(m)"}}"#, "headers": ["apns-priority": "5"],
                        "tags": ["x", "t.1"],
                    ]
                ],
            ]
        )
        #expect(installation.fields["_azure"]?["templateNames"] == ["t.1"])
        #expect(installation.fields["_azure"]?["templates"]?["t$1"]?["name"] == "t.1")
    }

    @Test("A field that was not set is left out")
    func absent() throws {
        let body: JSONObject = [
            "installationId": "i", "platform": "fcmV1", "pushChannel": "token", "tags": .null,
        ]
        #expect(
            HubInstallation(try kept(HubInstallation(body, id: "i"))).object(isExpired: false)
                == [
                    "installationId": "i", "pushChannel": "token", "pushChannelExpired": false,
                    "platform": "fcmv1", "expirationTime": "9999-12-31T23:59:59.9999999Z",
                ]
        )
    }

    @Test("A platform without a provider of ours is stored without a route")
    func unreached() throws {
        let channel: JSONValue = ["endpoint": "https://push.example/1", "p256dh": "p", "auth": "a"]
        let body: JSONObject = [
            "installationId": "i", "platform": "browser", "pushChannel": channel,
        ]
        let installation = try kept(HubInstallation(body, id: "i"))
        #expect(installation.platform == nil)
        #expect(installation.token == nil)
        #expect(HubInstallation(installation).object(isExpired: false)["pushChannel"] == channel)
    }

    @Test("Tags that only Azure accepts stay when LeanCloud's surface saves another field")
    func otherSurface() throws {
        var installation = try kept(HubInstallation(Self.whole, id: "i1"))
        var object = installation.object
        object["timeZone"] = "Europe/Berlin"
        let now = Instant(milliseconds: 2000)
        try installation.take(object, changed: ["timeZone"], now: now)
        #expect(installation.channels == ["a:b", "c"])
        object["channels"] = ["a:b", "d:e"]
        #expect(throws: InstallationError.self) {
            try installation.take(object, changed: ["channels"], now: now)
        }
    }

    @Test(
        "A missing or invalid required field of an installation is refused",
        arguments: [
            ["platform": "apns", "pushChannel": "a"],
            ["installationId": "j", "platform": "apns", "pushChannel": "a"],
            ["installationId": "i", "pushChannel": "a"],
            ["installationId": "i", "platform": "amiga", "pushChannel": "a"],
            ["installationId": "i", "platform": "apns"],
            ["installationId": "i", "platform": "apns", "pushChannel": "a", "tags": "x"],
            ["installationId": "i", "platform": "apns", "pushChannel": "a", "tags": ["x y"]],
            ["installationId": "i", "platform": "apns", "pushChannel": "a", "userId": "a b"],
            ["installationId": "i", "platform": "browser", "pushChannel": "a"],
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "templates": ["t": ["body": "not json"]],
            ],
            [
                "installationId": "i", "platform": "wns", "pushChannel": "https://x/1",
                "templates": ["t": ["body": "<toast>"]],
            ],
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "templates": ["t": ["body": "{}", "headers": ["X-WNS-Type": "wns/raw"]]],
            ],
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "templates": ["t": ["body": "{}", "headers": ["apns-priority": "high"]]],
            ],
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "pushVariables": ["v": .string(String(repeating: "v", count: 17_000))],
            ],
        ] as [JSONObject]
    )
    func refused(_ body: JSONObject) {
        #expect(throws: AzureError.self) { try HubInstallation(body, id: "i") }
    }

    @Test("A template's expiry without a zone is stored in UTC, and a refused header is named")
    func templates() throws {
        func body(_ template: JSONValue) -> JSONObject {
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "templates": ["t": template],
            ]
        }
        let wanted = try HubInstallation(
            body(["body": "{}", "expiry": "2030-01-01T00:00:00"]),
            id: "i"
        )
        #expect(wanted.channel.template("t")?.expiry == "2030-01-01T00:00:00Z")
        let error = #expect(throws: AzureError.self) {
            try HubInstallation(body(["body": "{}", "headers": ["Host": "x"]]), id: "i")
        }
        #expect(error?.description == "templates.t.headers.Host is not a header that may be set")
        // Google's messages have no headers: those of a template are stored, and not sent.
        var gcm = body(["body": "{}", "headers": ["X-H": "v"]])
        gcm["platform"] = "gcm"
        let google = try HubInstallation(gcm, id: "i")
        #expect(google.channel.template("t")?.headers == ["X-H": "v"])
    }

    @Test("An installation has at most 100 secondary tiles")
    func tiles() throws {
        func body(_ count: Int) -> JSONObject {
            var tiles: JSONObject = [:]
            for number in 0..<count {
                tiles["tile-\(number)"] = ["pushChannel": "https://h.notify.windows.com/?token=t"]
            }
            return [
                "installationId": "i", "platform": "wns", "pushChannel": "https://h/",
                "secondaryTiles": .object(tiles),
            ]
        }
        #expect(try HubInstallation(body(100), id: "i").secondaryTiles.count == 100)
        #expect(throws: AzureError.self) { try HubInstallation(body(101), id: "i") }
    }

    @Test("A tag that an expression cannot name is refused, unless another surface stored it")
    func unusableTags() throws {
        func body(_ tag: String) -> JSONObject {
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "tags": [.string(tag)],
            ]
        }
        _ = try HubInstallation(body(String(repeating: "t", count: 120)), id: "i")
        for tag in [String(repeating: "t", count: 121), "", "a b"] {
            #expect(throws: AzureError.self) { try HubInstallation(body(tag), id: "i") }
        }
        var kept = try HubInstallation(body("a"), id: "i")
        kept.channel.tags = [""]
        let patch = try InstallationPatch([["op": "add", "path": "/tags", "value": "b"]])
        #expect(try patch.applied(to: kept).channel.tags == ["", "b"])
    }

    @Test("An installation has at most 60 tags")
    func tagBound() throws {
        func body(_ count: Int) -> JSONObject {
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "tags": .array((0..<count).map { .string("t\($0)") }),
            ]
        }
        _ = try HubInstallation(body(60), id: "i")
        #expect(throws: AzureError.self) { try HubInstallation(body(61), id: "i") }
    }

    // MARK: Patches

    private func patched(_ operations: JSONValue) throws -> JSONObject {
        try InstallationPatch(operations).applied(to: HubInstallation(Self.whole, id: "i1"))
            .object(isExpired: false)
    }

    @Test("Tags are added, replaced and removed by their text")
    func tags() throws {
        func tags(_ operations: JSONValue...) throws -> JSONValue? {
            try patched(.array(operations))["tags"]
        }
        #expect(try tags(["op": "add", "path": "/tags", "value": "d"]) == ["a:b", "c", "d"])
        #expect(try tags(["op": "add", "path": "/tags", "value": "c"]) == ["a:b", "c"])
        #expect(
            try tags(["op": "add", "path": "/tags", "value": #"["d","e"]"#])
                == ["a:b", "c", "d", "e"]
        )
        #expect(try tags(["op": "add", "path": "/tags", "value": ["d"]]) == ["a:b", "c", "d"])
        #expect(try tags(["op": "replace", "path": "/tags", "value": "d"]) == ["d"])
        #expect(try tags(["op": "remove", "path": "/tags/a:b"]) == ["c"])
        #expect(try tags(["op": "remove", "path": "/tags/none"]) == ["a:b", "c"])
        #expect(try tags(["op": "remove", "path": "/tags"]) == nil)
        #expect(
            try tags(
                ["op": "remove", "path": "/tags/a:b"],
                ["op": "remove", "path": "/tags/c", "value": .null]
            ) == nil
        )
    }

    @Test("An addition at the end of the list adds a tag, and does not name it -")
    func appendedTags() throws {
        let kept = try HubInstallation(
            [
                "installationId": "i", "platform": "apns", "pushChannel": "a",
                "tags": ["news"], "templates": ["t": ["body": "{}", "tags": ["x"]]],
            ],
            id: "i"
        )
        func channel(_ operations: JSONValue...) throws -> HubChannel {
            try InstallationPatch(.array(operations)).applied(to: kept).channel
        }
        for value: JSONValue in ["vip", ["vip"], #"["vip", "news"]"#] {
            let added: JSONValue = ["op": "add", "path": "/tags/-", "value": value]
            #expect(try channel(added).tags == ["news", "vip"])
        }
        let added: JSONValue = ["op": "add", "path": "/templates/t/tags/-", "value": "y"]
        #expect(try channel(added).template("t")?.tags == ["x", "y"])
        // In other positions a tag in the path is meant by its text; so is one of that name, to be
        // removed.
        let named: JSONValue = ["op": "add", "path": "/tags/vip"]
        #expect(try channel(named).tags == ["news", "vip"])
        let wrong: JSONValue = ["op": "add", "path": "/tags", "value": "-"]
        #expect(try channel(wrong).tags == ["news", "-"])
        #expect(try channel(wrong, ["op": "remove", "path": "/tags/-"]).tags == ["news"])
        for refused: JSONValue in [
            ["op": "add", "path": "/tags/-"],
            ["op": "replace", "path": "/tags/-", "value": "x"],
        ] {
            #expect(throws: AzureError.self) { try channel(refused) }
        }
    }

    @Test("Templates come as text, and are patched part by part")
    func patchedTemplates() throws {
        let body = #"{"data":{"m":"$(m)"}}"#
        let result = try patched([
            [
                "op": "add", "path": "/templates/new",
                "value": .string(JSONValue.object(["body": .string(body)]).text),
            ],
            ["op": "replace", "path": "/templates/t.1/body", "value": "{}"],
            ["op": "add", "path": "/templates/t.1/headers", "value": #"{"apns-topic":"t"}"#],
            ["op": "add", "path": "/templates/t.1/tags", "value": "y"],
            ["op": "remove", "path": "/templates/t.1/tags/x"],
        ])
        #expect(
            result["templates"] == [
                "t.1": ["body": "{}", "headers": ["apns-topic": "t"], "tags": ["y", "t.1"]],
                "new": ["body": .string(body), "tags": ["new"]],
            ]
        )
        #expect(try patched([["op": "remove", "path": "/templates/t.1"]])["templates"] == nil)
    }

    @Test("Channel, user, variables, expiry and tiles are patched too")
    func others() throws {
        let result = try patched([
            ["op": "replace", "path": "/pushChannel", "value": "beef"],
            ["op": "remove", "path": "/userId"],
            ["op": "add", "path": "/pushVariables/w", "value": "2"],
            ["op": "replace", "path": "/expirationTime", "value": "2030-01-01T00:00:00Z"],
            ["op": "add", "path": "/secondaryTiles/s/pushChannel", "value": "https://x/1"],
            ["op": "add", "path": "/secondaryTiles/s/tags", "value": "z"],
        ])
        #expect(result["pushChannel"] == "beef")
        #expect(result["userId"] == nil)
        #expect(result["pushVariables"] == ["v": "1", "w": "2"])
        #expect(result["expirationTime"] == "2030-01-01T00:00:00Z")
        #expect(
            result["secondaryTiles"] == ["s": ["pushChannel": "https://x/1", "tags": ["z"]]]
        )
    }

    @Test(
        "A patch is all or nothing: one bad operation refuses it",
        arguments: [
            ["op": "add", "path": "/nothing", "value": "x"],
            ["op": "move", "path": "/tags", "value": "x"],
            ["op": "add", "path": "tags", "value": "x"], ["op": "add", "path": "/tags"],
            ["op": "remove", "path": "/pushChannel"],
            ["op": "add", "path": "/templates/none/body", "value": "{}"],
            ["op": "add", "path": "/templates/n", "value": "not json"],
            ["op": "add", "path": "/platform", "value": "wns"],
            ["op": "add", "path": "/tags", "value": "no blanks"], "nothing at all",
        ] as [JSONValue]
    )
    func refusedPatch(_ operation: JSONValue) {
        #expect(throws: AzureError.self) {
            try patched([["op": "add", "path": "/tags", "value": "fine"], operation])
        }
    }
}
