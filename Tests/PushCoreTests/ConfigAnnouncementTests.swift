import JSON
import PushCore
import PushEvents
import Testing

@Suite("A record of PUSH_RC becomes a silent push", .timeLimit(.minutes(1)))
struct ConfigAnnouncementTests {
    private static let ours = """
        {"id": "config/firebase/8", "source": "carillon/config", "app": "shop", "topic": "PUSH_RC",
         "data": {"CONFIG_STATE": "STALE", "CONFIG_VERSION": "8"}, "configVersion": "8",
         "namespace": "firebase", "updateType": "INCREMENTAL_UPDATE"}
        """

    private func decode(
        _ value: String,
        topic: String = "t.PUSH_RC",
        _ headers: [RecordHeader] = []
    ) throws(DeadLetterReason) -> PushEvent {
        try PushEvent.decode(
            IncomingRecord(
                topic: topic,
                partition: 1,
                offset: 5,
                key: Array("shop".utf8),
                value: Array(value.utf8),
                headers: headers
            ),
            now: .now(),
            topics: KafkaTopics(prefix: "t.")
        )
    }

    @Test("Each platform gets the same keys where its clients look for them")
    func ours() throws {
        let event = try decode(Self.ours)
        #expect(event.app == "shop")
        #expect(event.source == "carillon/config")
        #expect(event.eventID == "config/firebase/8")
        #expect(
            event.request.audience == .topic(AudienceTopic(name: "PUSH_RC", configVersion: 8))
        )
        let native = event.request.native
        #expect(
            native.fcm
                == ["message": ["data": ["CONFIG_STATE": "STALE", "CONFIG_VERSION": "8"]]]
        )
        #expect(
            native.apns?["payload"]
                == [
                    "aps": ["content-available": 1], "CONFIG_STATE": "STALE", "CONFIG_VERSION": "8",
                ]
        )
        #expect(native.apns?["headers"]?["apns-push-type"] == "background")
        let text = #"{"CONFIG_STATE":"STALE","CONFIG_VERSION":"8"}"#
        #expect(native.wns == ["type": "wns/raw", "body": .string(text)])
        #expect(native.mpns == ["body": .string(text)])
        #expect(event.request.priority == .normal)
        #expect(event.request.unknownFields.isEmpty)
        #expect(event.request.repeatsOverwrite)
        // Its stored form is parsed to the same request.
        let again = try PushRequest.parse(event.object, now: .now(), isStored: true)
        #expect(again == event.request)
    }

    @Test("The original form with an app is accepted, and is identified by its position")
    func seed() throws {
        let event = try decode(
            #"{"topic":"PUSH_RC","data":{"CONFIG_STATE":"STALE"},"app":"shop"}"#
        )
        #expect(event.eventID == "t.PUSH_RC/1/5")
        #expect(event.request.audience == .topic(AudienceTopic(name: "PUSH_RC")))
        #expect(event.request.native.fcm == ["message": ["data": ["CONFIG_STATE": "STALE"]]])
    }

    @Test("A CloudEvent's id and source identify it and decide how its push is sent")
    func cloudEvent() throws {
        let event = try decode(
            #"{"topic":"/topics/PUSH_RC","data":{"CONFIG_STATE":"STALE"},"app":"shop"}"#,
            [
                RecordHeader("ce_specversion", "1.0"), RecordHeader("ce_id", "c1"),
                RecordHeader("ce_source", "carillon/config"), RecordHeader("ce_type", "stale"),
            ]
        )
        #expect(event.eventID == "c1")
        #expect(event.request.repeatsOverwrite)
        #expect(event.request.audience == .topic(AudienceTopic(name: "PUSH_RC")))
    }

    @Test(
        "A spread is added once, as a third word",
        arguments: [
            (#""spread": 30"#, "30"), (#""spread": 1.5"#, "1.5"), (#""spread": 0"#, nil),
        ] as [(String, String?)]
    )
    func spread(field: String, words: String?) throws {
        let event = try decode(
            #"{"topic":"PUSH_RC","data":{"CONFIG_STATE":"STALE"},"app":"shop",\#(field)}"#
        )
        let data = event.request.native.fcm?["message"]?["data"]
        #expect(data?["CONFIG_SPREAD_SECONDS"]?.string == words)
        #expect((event.request.spreadMilliseconds != nil) == (words != nil))
    }

    @Test(
        "An invalid record is refused with the reason",
        arguments: [
            (#"{"topic":"PUSH_RC","data":{"CONFIG_STATE":"STALE"}}"#, "missing_app"),
            (#"{"data":{"CONFIG_STATE":"STALE"},"app":"shop"}"#, "topic is missing"),
            (#"{"topic":"a b","data":{"A":"b"},"app":"shop"}"#, "audience_topic must be"),
            (#"{"topic":"PUSH_RC","app":"shop"}"#, "data is missing"),
            (#"{"topic":"PUSH_RC","data":{},"app":"shop"}"#, "data is missing"),
            (
                #"{"topic":"PUSH_RC","data":{"CONFIG_VERSION":8},"app":"shop"}"#,
                "data.CONFIG_VERSION"
            ),
            (#"{"topic":"PUSH_RC","data":{"aps":"x"},"app":"shop"}"#, "data.aps"),
            (#"{"topic":"PUSH_RC","data":{"A":"b"},"app":"shop","native":{}}"#, "native and data"),
            (#"{"topic":"PUSH_RC","data":{"A":"b"},"app":"shop","channels":["x"]}"#, "channels"),
            (#"["PUSH_RC"]"#, "not_an_object"), (#"{"#, "invalid_json"),
        ]
    )
    func unusable(value: String, words: String) {
        let error = #expect(throws: DeadLetterReason.self) { try decode(value) }
        let told = "\(error?.reason.rawValue ?? "") \(error?.detail ?? "")"
        #expect(told.contains(words), "\(told)")
    }

    @Test("The same value on push.requests is a normal push to the app's devices")
    func elsewhere() throws {
        let event = try decode(
            #"{"channels":["x"],"topic":"PUSH_RC","data":{"CONFIG_STATE":"STALE"},"app":"shop"}"#,
            topic: "t.push.requests"
        )
        #expect(event.request.apnsTopic == "PUSH_RC")
        #expect(event.request.audience == .installations(.init(channels: ["x"])))
    }
}
