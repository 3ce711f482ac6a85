import JSON
import PushCore
import PushEvents
import Testing

@Suite(.timeLimit(.minutes(1)))
struct PushEventTests {
    private let now = Instant(milliseconds: 1_790_000_000_000)
    private let request = #"{"app": "shop", "channels": ["a"], "data": {"alert": "Ring"}}"#

    private func record(_ value: String?, _ headers: [RecordHeader] = []) -> IncomingRecord {
        IncomingRecord(
            topic: "push.requests",
            partition: 3,
            offset: 41,
            key: nil,
            value: value.map { Array($0.utf8) },
            headers: headers
        )
    }

    private func reason(_ record: IncomingRecord) -> DeadLetterReason.Reason? {
        do throws(DeadLetterReason) {
            _ = try PushEvent.decode(record, now: now)
            return nil
        } catch {
            return error.reason
        }
    }

    @Test("A plain record is identified by its id and source, else by its position")
    func plain() throws {
        let named = try PushEvent.decode(
            record(#"{"id": "e1", "source": "orders", "app": "shop", "data": {}}"#),
            now: now
        )
        #expect(named.app == "shop")
        #expect(named.source == "orders")
        #expect(named.eventID == "e1")
        let numbered = try PushEvent.decode(
            record(#"{"id": 7, "app": "shop", "data": {}}"#),
            now: now
        )
        #expect(numbered.eventID == "7")
        #expect(numbered.source == "")
        let unnamed = try PushEvent.decode(record(request), now: now)
        #expect(unnamed.source == "push.requests")
        #expect(unnamed.eventID == "push.requests/3/41")
    }

    @Test("A CloudEvent in binary mode is identified by its headers")
    func binary() throws {
        let event = try PushEvent.decode(
            record(
                request,
                [
                    RecordHeader("ce_specversion", "1.0"), RecordHeader("ce_id", "A234"),
                    RecordHeader("ce_source", "/orders"), RecordHeader("ce_type", "shipped"),
                    RecordHeader("content-type", "application/json"),
                ]
            ),
            now: now
        )
        #expect(event.source == "/orders")
        #expect(event.eventID == "A234")
        #expect(event.request.data == ["alert": "Ring"])
    }

    @Test(
        "A CloudEvent in structured mode may have its data as an object, as text or in Base64",
        arguments: [
            #""data": {"app": "shop", "data": {}}"#,
            #""data": "{\"app\": \"shop\", \"data\": {}}""#,
            #""data_base64": "eyJhcHAiOiAic2hvcCIsICJkYXRhIjoge319""#,
        ],
        [
            [RecordHeader("content-type", "application/cloudevents+json; charset=UTF-8")],
            [RecordHeader("Content-Type", "application/cloudevents+json")], [],
        ]
    )
    func structured(data: String, headers: [RecordHeader]) throws {
        let value = #"{"specversion": "1.0", "id": "s1", "source": "crm", "type": "t", \#(data)}"#
        let event = try PushEvent.decode(record(value, headers), now: now)
        #expect(event.app == "shop")
        #expect(event.source == "crm")
        #expect(event.eventID == "s1")
        #expect(event.object["specversion"] == nil)
    }

    @Test(
        "An unreadable record is a dead letter with its reason and blocks no other",
        arguments: [
            (nil, .emptyValue), ("", .emptyValue), ("garbage", .invalidJSON),
            ("[1]", .notAnObject), (#"{"data": {}}"#, .missingApp),
            (#"{"app": "shop", "channels": 7, "data": {}}"#, .invalidRequest),
            (#"{"specversion": "0.3", "id": "a", "source": "b", "type": "c"}"#, .invalidCloudEvent),
            (#"{"specversion": "1.0", "source": "b", "type": "c"}"#, .invalidCloudEvent),
            (
                #"{"specversion": "1.0", "id": "a", "source": "b", "type": "c"}"#,
                .invalidCloudEvent
            ),
            (
                #"{"specversion":"1.0","id":"a","source":"b","type":"c","data_base64":"e30"}"#,
                .invalidCloudEvent
            ),
            (
                #"{"specversion":"1.0","id":"a","source":"b","type":"c","data":[]}"#,
                .invalidCloudEvent
            ),
        ] as [(String?, DeadLetterReason.Reason)]
    )
    func deadLetters(value: String?, expected: DeadLetterReason.Reason) {
        #expect(reason(record(value)) == expected)
    }

    @Test("A batch of CloudEvents, and a binary one without its id, are refused")
    func oddCloudEvents() {
        let batch = [RecordHeader("content-type", "application/cloudevents-batch+json")]
        for value in ["{}", "[]", #"[{"specversion":"1.0","id":"a","source":"b","type":"c"}]"#] {
            #expect(reason(record(value, batch)) == .invalidCloudEvent)
        }
        let headers = [
            RecordHeader("ce_specversion", "1.0"), RecordHeader("ce_source", "a"),
            RecordHeader("ce_type", "b"),
        ]
        #expect(reason(record(request, headers)) == .invalidCloudEvent)
    }

    @Test("A CloudEvent's id and source take precedence over those of its request")
    func envelope() throws {
        let own = #"{"id": "own", "source": "mine", "app": "shop", "data": {"alert": "Ring"}}"#
        let structured =
            #"{"specversion": "1.0", "id": "e1", "source": "/orders", "type": "t", "data": \#(own)}"#
        let headers = [
            RecordHeader("ce_specversion", "1.0"), RecordHeader("ce_id", "e1"),
            RecordHeader("ce_source", "/orders"), RecordHeader("ce_type", "t"),
        ]
        for record in [
            record(structured), record(own, headers), record(own, [headers[1], headers[2]]),
        ] {
            let event = try PushEvent.decode(record, now: now)
            #expect(event.eventID == "e1" && event.source == "/orders")
        }
    }

    @Test("ce_id and ce_source identify an event even without a version")
    func bareHeaders() throws {
        let headers = [RecordHeader("ce_id", "e1"), RecordHeader("ce_source", "/orders")]
        let event = try PushEvent.decode(record(request, headers), now: now)
        #expect(event.eventID == "e1")
        #expect(event.source == "/orders")
        #expect(reason(record(request, [RecordHeader("ce_id", "")])) == .invalidCloudEvent)
    }

    @Test("A dead letter that is too large for its topic still has its reason and position")
    func largeDeadLetter() {
        let letter = OutgoingRecord.deadLetter(
            record("garbage", [RecordHeader("trace", [0])]),
            because: DeadLetterReason(.invalidJSON, "line 1"),
            topics: KafkaTopics(prefix: ""),
            isContentKept: false
        )
        #expect(letter.value == nil)
        #expect(
            letter.headers == [
                RecordHeader("error.reason", "invalid_json"),
                RecordHeader(
                    "error.detail",
                    "line 1; 7 bytes, too large for this topic, are left out"
                ),
                RecordHeader("source.topic", "push.requests"),
                RecordHeader("source.partition", "3"), RecordHeader("source.offset", "41"),
                RecordHeader("error.content", "omitted"),
            ]
        )
    }

    @Test("A dead letter is the original record, with its reason and position")
    func deadLetterRecord() {
        let came = record(
            "garbage",
            [RecordHeader("trace", [0, 255]), RecordHeader("error.reason", "old")]
        )
        let letter = OutgoingRecord.deadLetter(
            came,
            because: DeadLetterReason(.invalidJSON, "line 1"),
            topics: KafkaTopics(prefix: "test.")
        )
        #expect(letter.topic == "test.push.dead-letters")
        #expect(letter.value == came.value)
        #expect(
            letter.headers == [
                RecordHeader("trace", [0, 255]), RecordHeader("error.reason", "invalid_json"),
                RecordHeader("error.detail", "line 1"),
                RecordHeader("source.topic", "push.requests"),
                RecordHeader("source.partition", "3"), RecordHeader("source.offset", "41"),
            ]
        )
    }

    @Test("A record that is written for a push is read back as the same event")
    func roundTrip() throws {
        let object = try #require(try JSONValue.parse(request).object)
        let written = PushEvent.encode(
            object,
            app: "shop",
            source: "carillon/http",
            eventID: "e9",
            topics: KafkaTopics()
        )
        #expect(written.topic == "push.requests")
        #expect(written.key == Array("e9".utf8))
        let read = try PushEvent.decode(
            IncomingRecord(
                topic: written.topic,
                partition: 0,
                offset: 0,
                key: written.key,
                value: written.value,
                headers: written.headers
            ),
            now: now
        )
        #expect(read.app == "shop")
        #expect(read.source == "carillon/http")
        #expect(read.eventID == "e9")
    }

    @Test("An outcome has the fields and names of the contract")
    func outcome() throws {
        var writer = OutcomeWriter()
        var outcome = OutcomeRecord(
            installationID: "i",
            target: "i",
            platform: .apns,
            environment: .production,
            outcome: .inDoubt,
            reason: "Unregistered",
            status: 410,
            providerMessageID: "m",
            attempt: 1,
            at: Instant(iso8601: "2026-11-20T21:04:05.123Z") ?? now
        )
        func value() throws -> JSONValue {
            var bytes: [UInt8] = []
            writer.write(
                outcome,
                pushID: "p",
                eventID: "order \"8812\"",
                app: "shop",
                into: &bytes
            )
            return try JSONValue.parse(bytes)
        }
        #expect(
            try value() == [
                "pushId": "p", "eventId": "order \"8812\"", "app": "shop", "installationId": "i",
                "provider": "apns", "environment": "production", "outcome": "in_doubt",
                "reason": "Unregistered", "status": 410, "providerMessageId": "m", "attempt": 1,
                "at": "2026-11-20T21:04:05.123Z",
            ]
        )
        outcome.installationID = nil
        outcome.target = "hash"
        outcome.environment = .none
        outcome.status = nil
        outcome.reason = "a \"word\"\n"
        outcome.attempt = 12
        outcome.at = outcome.at.adding(milliseconds: 60_000 - 119)
        let bare = try value()
        #expect(bare["reason"]?.string == "a \"word\"\n")
        #expect(bare["attempt"]?.integer == 12)
        #expect(bare["at"]?.string == "2026-11-20T21:05:05.004Z")
        #expect(bare["installationId"] == .null)
        #expect(bare["environment"] == .null)
        #expect(bare["status"] == .null)
    }

    @Test("One writer writes the outcomes of many pushes and apps, each with its own names")
    func outcomesOfMany() throws {
        var writer = OutcomeWriter()
        func names(_ pushID: String, _ eventID: String, _ app: String) throws -> [String?] {
            let outcome = OutcomeRecord(
                installationID: "i",
                target: "i",
                platform: .apns,
                environment: .production,
                outcome: .delivered,
                reason: nil,
                status: 200,
                providerMessageID: nil,
                attempt: 1,
                at: now
            )
            var bytes: [UInt8] = []
            writer.write(outcome, pushID: pushID, eventID: eventID, app: app, into: &bytes)
            let value = try JSONValue.parse(bytes)
            return [value["pushId"]?.string, value["eventId"]?.string, value["app"]?.string]
        }
        for push in [["p", "e", "a"], ["p", "e", "a"], ["q", "f\n", "a"], ["q", "f\n", "b"]] {
            #expect(try names(push[0], push[1], push[2]) == push)
        }
    }
}
