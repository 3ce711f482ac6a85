import JSON
import PushCore
import Testing

@Suite(.timeLimit(.minutes(1)))
struct PushRequestTests {
    private let now = Instant(milliseconds: 1_790_000_000_000)

    private func parse(_ text: String) throws -> PushRequest {
        let object = try #require(try JSONValue.parse(text).object)
        return try PushRequest.parse(object, now: now)
    }

    private func error(_ text: String) throws -> PushRequestError? {
        let object = try #require(try JSONValue.parse(text).object)
        return #expect(throws: PushRequestError.self) {
            _ = try PushRequest.parse(object, now: now)
        }
    }

    @Test("The contract's own example is read, except for fields that exclude others")
    func readsTheExample() throws {
        let request = try parse(
            """
            {"id": "order-8812-shipped", "source": "orders", "app": "shop", "channels": ["Mets"],
             "where": {}, "identities": ["user-42"], "installations": ["a", "b", "a"],
             "data": {"alert": "The Mets scored!", "badge": 3, "sound": "cheering.caf", "ios": {},
                "android": {}, "wp": {}},
             "native": {"apns": {"headers": {}, "payload": {}}, "fcm": {"message": {}},
                "wns": {"type": "wns/toast", "headers": {}, "body": "<toast/>"}},
             "expiration_interval": 518400, "topic": "com.example.shop", "collapse_id": "score",
             "priority": "high", "dry_run": false, "prod": "dev"}
            """
        )
        #expect(request.id == "order-8812-shipped")
        #expect(request.app == "shop")
        #expect(
            request.audience
                == .installations(
                    .init(channels: ["Mets"], identities: ["user-42"], installations: ["a", "b"])
                )
        )
        #expect(request.isDirect)
        #expect(request.apnsTopic == "com.example.shop")
        #expect(request.priority == .high)
        #expect(request.environment == .sandbox)
        #expect(!request.isDryRun)
        #expect(try parse(#"{"data": {}, "dry_run": true}"#).isDryRun)
        #expect(request.native.wns?["type"] == "wns/toast")
        #expect(request.unknownFields.isEmpty)
        #expect(
            request.expiresAt(acceptedAt: now) == now.adding(milliseconds: 518_400_000)
        )
    }

    @Test("All devices are selected without a selector, and no device by an empty list")
    func readsAudiences() throws {
        #expect(try parse(#"{"data": {}}"#).audience == .installations(.init()))
        #expect(
            try parse(#"{"data": {}, "channels": []}"#).audience
                == .installations(.init(channels: []))
        )
        #expect(
            try parse(#"{"data": {}, "channels": "Mets"}"#).audience
                == .installations(.init(channels: ["Mets"]))
        )
        let tokens = try parse(
            """
            {"data": {}, "tokens": [{"platform": "apns", "token": "ABcd", "environment": "sandbox"},
                {"platform": "wns", "token": "https://db5.notify.windows.com/?token=a%2b"}]}
            """
        )
        #expect(
            tokens.audience
                == .tokens([
                    .init(platform: .apns, token: "abcd", environment: .sandbox),
                    .init(platform: .wns, token: "https://db5.notify.windows.com/?token=a%2b"),
                ])
        )
    }

    @Test(
        "A known field with an invalid value is refused by its name",
        arguments: [
            (#"{"data": 7}"#, "data"), (#"{}"#, "data"), (#"{"data": {"alert": 1}}"#, "data.alert"),
            (#"{"data": {"badge": "many"}}"#, "data.badge"),
            (#"{"data": {"badge": 1.5}}"#, "data.badge"),
            (#"{"data": {"ios": []}}"#, "data.ios"),
            (#"{"data": {"ios": {"sound": 1}}}"#, "data.ios.sound"),
            (#"{"data": {"content-available": 2}}"#, "data.content-available"),
            (#"{"data": {}, "channels": 7}"#, "channels"),
            (#"{"data": {}, "channels": ["a", 7]}"#, "channels[1]"),
            (#"{"data": {}, "channels": ["a", {}]}"#, "channels[1]"),
            (#"{"data": {}, "identities": "user"}"#, "identities"),
            (#"{"data": {}, "identities": null}"#, "identities"),
            (#"{"data": {}, "tags": null}"#, "tags"),
            (#"{"data": {}, "installations": {}}"#, "installations"),
            (#"{"data": {}, "tokens": "t"}"#, "tokens"),
            (#"{"data": {}, "tokens": [{"token": "t"}]}"#, "tokens[0].platform"),
            (#"{"data": {}, "tokens": [{"platform": "gcm", "token": "t"}]}"#, "tokens[0].platform"),
            (#"{"data": {}, "tokens": [{"platform": "apns"}]}"#, "tokens[0].token"),
            (#"{"data": {}, "tokens": [{"platform": "apns", "token": "a/b"}]}"#, "tokens[0].token"),
            (
                #"{"data": {}, "tokens": [{"platform": "fcm", "token": "t", "environment": "x"}]}"#,
                "tokens[0].environment"
            ),
            (#"{"data": {}, "tokens": [{"platform": "fcm", "tokn": "t"}]}"#, "tokens[0].tokn"),
            (
                """
                {"data": {}, "tokens": [{"platform": "apns", "token": "aa"},
                    {"platform": "apns", "token": "AA", "environment": "sandbox"}]}
                """,
                "tokens[1]"
            ),
            (#"{"data": {"alert": "a", "alert-fr": 1}}"#, "data.alert-fr"),
            (#"{"data": {"ios": {"title-zh-CN": ["b"]}}}"#, "data.ios.title-zh-CN"),
            (#"{"data": {}, "app": "a b"}"#, "app"), (#"{"data": {}, "app": {}}"#, "app"),
            (#"{"data": {}, "id": ""}"#, "id"), (#"{"data": {}, "priority": "max"}"#, "priority"),
            (#"{"data": {}, "prod": "production"}"#, "prod"),
            (#"{"data": {}, "expiration_interval": -1}"#, "expiration_interval"),
            (#"{"data": {}, "expiration_interval": "soon"}"#, "expiration_interval"),
            (#"{"data": {}, "expiration_time": "tomorrow"}"#, "expiration_time"),
            (#"{"data": {}, "expiration_time": "2026-11-20T21:04:05"}"#, "expiration_time"),
            (#"{"data": {}, "native": {"apns": {}}}"#, "native.apns.payload"),
            (#"{"data": {}, "native": {"hms": {}}}"#, "native.hms"),
            (#"{"data": {}, "native": {"mpns": "x"}}"#, "native.mpns"),
            (#"{"data": {}, "native": {"mpns": {}}}"#, "native.mpns.body"),
            (#"{"native": {"wns": {"type": "toast", "body": ""}}}"#, "native.wns.type"),
            (
                #"{"native": {"apns": {"payload": {}, "headers": {"apns-priority": 5}}}}"#,
                "native.apns.headers.apns-priority"
            ),
            (#"{"data": {}, "collapse_id": ""}"#, "collapse_id"),
            (#"{"data": {}, "dry_run": "yes"}"#, "dry_run"),
            (#"{"data": {}, "pace": 0}"#, "pace"),
            (#"{"data": {}, "pace": "fast"}"#, "pace"),
            (#"{"data": {}, "pace": 10, "flow_control": 0}"#, "pace"),
            (#"{"data": {}, "flow_control": -1}"#, "flow_control"),
            (#"{"data": {}, "spread": -1}"#, "spread"), (#"{"data": {}, "spread": "x"}"#, "spread"),
            (#"{"data": {}, "spread": 86401}"#, "spread"),
            (#"{"data": {}, "spread": 1e308}"#, "spread"),
            (#"{"data": {}, "spread": 5, "pace": 10}"#, "spread"),
            (#"{"data": {}, "spread": 5, "flow_control": 0}"#, "spread"),
            (#"{"data": {}, "audience_topic": null}"#, "audience_topic"),
            (#"{"data": {}, "audience_topic": 5}"#, "audience_topic"),
            (#"{"data": {}, "audience_topic": ""}"#, "audience_topic"),
            (#"{"data": {}, "audience_topic": "/topics/"}"#, "audience_topic"),
            (#"{"data": {}, "audience_topic": "a b"}"#, "audience_topic"),
            (#"{"data": {}, "audience_topic": "topics/a"}"#, "audience_topic"),
            (#"{"data": {}, "audience_topic": "é"}"#, "audience_topic"),
            (#"{"data": {}, "audience_topic": "a", "configVersion": 0}"#, "configVersion"),
            (#"{"data": {}, "audience_topic": "a", "configVersion": "v8"}"#, "configVersion"),
            (#"{"data": {}, "audience_topic": "a", "namespace": 1}"#, "namespace"),
        ]
    )
    func namesTheField(text: String, field: String) throws {
        #expect(try error(text)?.field == field)
    }

    @Test("An audience topic follows FCM's naming rule, and other devices subscribe by a channel")
    func readsTopics() throws {
        for name in ["PUSH_RC", "a-Z_0.9~%", "/topics/PUSH_RC"] {
            let request = try parse(#"{"data": {}, "audience_topic": "\#(name)"}"#)
            let expected = name.replacing("/topics/", with: "")
            #expect(request.audience == .topic(AudienceTopic(name: expected)))
            #expect(request.audience.selectors?.channels == [expected])
            #expect(request.audience.selectors?.exceptFCM == true)
            #expect(!request.isDirect)
        }
        // A misspelt field beside it selects no further device.
        let unknown = try parse(#"{"data": {}, "audience_topic": "a", "chanels": ["b"]}"#)
        #expect(unknown.unknownFields == ["chanels"])
    }

    @Test(
        "An audience topic excludes other selectors",
        arguments: [
            #""channels": ["a"]"#, #""where": {}"#, #""cql": "select * from _Installation""#,
            #""identities": []"#, #""installations": ["a"]"#, #""tags": "a""#,
            #""platforms": ["apns"]"#, #""template": {"name": "a"}"#,
        ]
    )
    func topicStandsAlone(other: String) throws {
        let field = try error(#"{"data": {}, "audience_topic": "a", \#(other)}"#)?.field
        #expect(field == "audience_topic")
    }

    @Test("The audience below a remote config version is read from its number, for clients only")
    func readsConfigVersions() throws {
        func below(_ fields: String) throws -> Int? {
            try parse(#"{"data": {}, "audience_topic": "PUSH_RC", \#(fields)}"#)
                .audience.selectors?.configBelow
        }
        #expect(try below(#""configVersion": "8", "updateType": "ROLLBACK""#) == 8)
        #expect(try below(#""configVersion": 8, "namespace": "firebase""#) == 8)
        #expect(try below(#""configVersion": "8", "namespace": "firebase-server""#) == nil)
        #expect(try below(#""namespace": "firebase""#) == nil)
        let request = try parse(
            #"{"data": {}, "audience_topic": "a", "configVersion": "8", "namespace": "firebase"}"#
        )
        #expect(request.unknownFields.isEmpty)
        // For any other push these are unknown fields.
        let other = try parse(#"{"data": {}, "channels": ["a"], "configVersion": "8"}"#)
        #expect(other.unknownFields == ["configVersion"])
    }

    @Test(
        "A spread is read in seconds and fractions, and 0 means without a spread",
        arguments: [
            ("30", 30_000), ("0.25", 250), ("86400", 86_400_000), ("0", nil), ("null", nil),
        ] as [(String, Int?)]
    )
    func spread(text: String, milliseconds: Int?) throws {
        #expect(try parse(#"{"data": {}, "spread": \#(text)}"#).spreadMilliseconds == milliseconds)
    }

    @Test(
        "A field of the contract that this version lacks is refused by name, never ignored",
        arguments: [
            "req_id": #""a""#
        ]
    )
    func refusesByName(field: String, value: String) throws {
        let error = try error(#"{"data": {}, "\#(field)": \#(value)}"#)
        #expect(error?.field == field)
        #expect(error?.problem == .unsupported)
        #expect(error?.description == "\(field) is not supported yet")
    }

    @Test("where, a list of conditions and tags narrow each other")
    func readsConditions() throws {
        func condition(_ text: String) throws -> Where? {
            guard case .installations(let selectors) = try parse(text).audience else { return nil }
            return selectors.condition
        }
        #expect(try condition(#"{"data": {}, "where": {}}"#) == nil)
        #expect(try condition(#"{"data": {}, "where": []}"#) == nil)
        let badge = try Where.parse(["badge": 1])
        #expect(try condition(#"{"data": {}, "where": {"badge": 1}}"#) == badge)
        #expect(
            try condition(#"{"data": {}, "where": [{"badge": 1}, {"a": 2}]}"#)
                == Where.parse([["badge": 1], ["a": 2]])
        )
        let tags = try TagExpression.parse("a && !b").condition()
        #expect(try condition(#"{"data": {}, "tags": "a && !b"}"#) == tags)
        #expect(
            try condition(#"{"data": {}, "tags": "a && !b", "where": {"badge": 1}}"#)
                == .all([badge, tags])
        )
        #expect(
            try condition(#"{"data": {}, "cql": "select * from _Installation where badge = 1"}"#)
                == badge
        )
        #expect(try condition(#"{"data": {}, "cql": "select * from _Installation"}"#) == nil)
        #expect(try !parse(#"{"data": {}, "where": {"badge": 1}}"#).isDirect)
    }

    @Test(
        "An invalid condition is refused with its field, its operator and its code",
        arguments: [
            (#""where": {"score": {"$roughly": 1}}"#, "where", "$roughly", 102),
            (#""where": {"a": {"$regex": "("}}"#, "where", "a", 107),
            (
                #""where": {"a": {"$nin": [], "$inQuery": {"className": "Team"}}}"#, "where",
                "Team", 103
            ),
            (
                #""where": {"$or": [{"a": {"$notInQuery": {"b": {"$select": {"key": "x", "query": "#
                    + #"{"className": "Team", "where": {}}}}}}}]}"#, "where", "Team", 103
            ),
            (#""where": "{}""#, "where", "must be an object", 107),
            (#""where": {"a": 1}, "tokens": []"#, "tokens", "where", 107),
            (#""tags": "a", "tokens": []"#, "tokens", "tags", 107),
            (#""cql": "select * from _Installation", "where": {}"#, "where", "cql", 107),
            (#""cql": "select * from _User""#, "cql", "_Installation", 107),
            (#""cql": "select * from _Installation limit 3""#, "cql", "limit", 107),
            (#""cql": "select count(*) from _Installation""#, "cql", "count", 107),
            (#""cql": "update _Installation""#, "cql", "CQL", 300),
            (#""cql": "select * from _Installation where a near 3""#, "cql", "near", 300),
            (#""tags": "a &&""#, "tags", "character", 107), (#""tags": null"#, "tags", "null", 107),
            (#""tags": ["a"]"#, "tags", "a string", 107),
        ]
    )
    func refusesConditions(text: String, field: String, named: String, code: Int) throws {
        let error = try error(#"{"data": {}, \#(text)}"#)
        #expect(error?.field == field)
        #expect(error?.description.contains(named) == true, "\(error?.description ?? "")")
        #expect(error?.leanCloudCode == code)
    }

    @Test(
        "A pace is used unchanged, and LeanCloud's flow_control counts as 1000 at least",
        arguments: [
            (#""pace": 50"#, 50), (#""pace": 99999999999"#, 10_000_000),
            (#""flow_control": 0"#, 1000), (#""flow_control": 5000"#, 5000),
            (#""pace": null"#, nil),
        ] as [(String, Int?)]
    )
    func pace(field: String, devices: Int?) throws {
        #expect(try parse(#"{"data": {}, \#(field)}"#).pace == devices)
    }

    @Test("Texts in other languages follow the rules of the plain ones")
    func takesVariants() throws {
        let request = try parse(
            """
            {"data": {"alert": "a", "alert-fr": {"body": "b"}, "title-zh_CN": "c",
                "ios": {"alert-pt-BR": "d"}, "alert-type": 7}}
            """
        )
        #expect(request.data?["alert-fr"]?["body"] == "b")
    }

    @Test("An interval counts from push_time, even if that has passed")
    func judgesPushTime() throws {
        let past = try parse(
            #"{"data": {}, "push_time": "2026-01-01T00:00:00Z", "expiration_interval": "60"}"#
        )
        #expect(past.expiresAt(acceptedAt: now)?.iso8601 == "2026-01-01T00:01:00.000Z")
        // Apple's clients send time intervals unrounded, so it must not end too early.
        let part = try parse(
            #"{"data": {}, "push_time": "2026-01-01T00:00:00Z", "expiration_interval": 59.25}"#
        )
        #expect(part.expiresAt(acceptedAt: now) == past.expiresAt(acceptedAt: now))
    }

    @Test("Fields that exclude each other are refused")
    func refusesConflicts() throws {
        #expect(
            try error(
                #"{"data": {}, "expiration_time": "2199-01-01T00:00:00Z", "expiration_interval": 1}"#
            )?.problem == .conflict(with: "expiration_interval")
        )
        #expect(
            try error(
                #"{"data": {}, "tokens": [], "channels": ["a"]}"#
            )?.problem == .conflict(with: "channels")
        )
    }

    @Test("A misspelt selector alone is refused, and beside a known one it is only noted")
    func unknownFields() throws {
        #expect(try error(#"{"data": {}, "chanels": ["a"]}"#)?.problem == .noKnownSelector)
        let noted = try parse(#"{"data": {}, "channels": ["a"], "colour": "red"}"#)
        #expect(noted.unknownFields == ["colour"])
    }

    @Test("An error never contains content or a token")
    func errorsKeepSecrets() throws {
        for text in [
            #"{"data": {}, "tokens": [{"platform": "apns", "token": "se cret"}]}"#,
            #"{"data": {"alert": ["se cret"]}}"#,
        ] {
            #expect(try error(text)?.description.contains("cret") == false)
        }
    }

    @Test("An invalid channel name has LeanCloud's code 112")
    func channelCode() throws {
        let long = String(repeating: "a", count: 257)
        #expect(try error(#"{"data": {}, "channels": ["\#(long)"]}"#)?.leanCloudCode == 112)
        // Parse's apps have names that LeanCloud refuses: a producer on Kafka can select them, too.
        _ = try parse(#"{"data": {}, "channels": ["user:1", "a.b c"]}"#)
        for name in ["", "Mets", "a_b-c=d", "日本語", "Ünï"] { #expect(ChannelName.isValid(name)) }
        for name in ["a b", "a,b", "a.b", "a/b", "🔔"] { #expect(!ChannelName.isValid(name)) }
    }
}
