import Foundation
import JSON
import Kafka
import Support
import Testing

extension EndToEndTests {
    @Suite("A dispatcher's behaviour after failures", .serialized, .timeLimit(.minutes(3)))
    struct DispatchTests {
        /// Makes a push to tokens, with an id of its own.
        private func event(
            _ app: Stack.App,
            tokens: [String],
            _ more: JSONObject = [:]
        ) -> (id: String, request: JSONValue) {
            let id = TestEnvironment.unique("event-")
            var request: JSONObject = [
                "id": .string(id), "source": "e2e", "app": .string(app.id),
                "data": ["alert": "Ding dong"], "topic": .string(app.bundleID),
                "tokens": .array(
                    tokens.map {
                        [
                            "platform": "apns", "token": .string($0), "environment": "production",
                        ]
                    }
                ),
            ]
            for (key, value) in more { request[key] = value }
            return (id, .object(request))
        }

        private func count(_ question: String, _ stack: Stack) async throws -> Int {
            try #require(try await stack.database.query(question).first.flatMap { Int($0) })
        }

        /// Returns the sum of a metric over its labels that contain a text.
        private func metric(
            _ name: String,
            _ service: Stack.Service,
            _ labels: String = ""
        ) async throws -> Int {
            try await http("GET", service.url + "/metrics").text.split(separator: "\n")
                .filter { $0.hasPrefix(name + "{") || $0.hasPrefix(name + " ") }
                .filter { labels.isEmpty || $0.contains(labels) }
                .reduce(0) { $0 + (Int($1.split(separator: " ").last ?? "") ?? 0) }
        }

        private func notReady(_ service: Stack.Service) async throws -> String? {
            let answer = try await http("GET", service.url + "/readyz")
            return answer.status == 200 ? nil : answer.text
        }

        @Test("An event that Postgres rejects is a dead letter alone, and its neighbours are sent")
        func refusedByPostgres() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let phones = (0..<6).map { _ in makeAPNsToken() }
                for table in ["event_pushes", "pushes"] {
                    _ = try await stack.database.query(
                        "alter table \(table) add constraint poison check (event_id not like 'bad-%')"
                    )
                }
                // The fast path has sent it when it is rejected; with a label it is planned first.
                for label in [JSONObject(), ["notification_id": "label"]] {
                    let name = label.isEmpty ? "sent" : "planned"
                    let records = phones.enumerated().map { number, phone in
                        let id = "\(number == 3 ? "bad" : "good")-\(name)-\(number)"
                        var more = label
                        more["id"] = .string(id)
                        return (key: name, value: event(app, tokens: [phone], more).request.text)
                    }
                    // All are there before it reads, so that they come in one batch.
                    try await stack.kafka.produce(records, to: stack.topic("push.requests"))
                }
                let dispatcher = try await stack.start("carillon-dispatcher")
                for name in ["sent", "planned"] {
                    let letters = try await stack.deadLetters(1, key: name)
                    #expect(letters.map { $0.header("error.reason") } == ["not_storable"])
                    #expect(letters.first?.value.contains("bad-\(name)-3") == true)
                }
                _ = try await eventually("the others are written") {
                    try await count("select count(*) from all_pushes where status = 'done'", stack)
                        == 10 ? true : nil
                }
                #expect(try await stack.simulator.received(for: phones[3]).count == 1)
                #expect(try await stack.simulator.received(for: phones[4]).count == 2)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("An event of an unknown app is a dead letter, and an app is found once it exists")
        func unknownApp() async throws {
            try await Stack.with { stack in
                let known = try await stack.makeApp()
                let dispatcher = try await stack.start("carillon-dispatcher")
                let name = TestEnvironment.unique("late-")
                let phone = makeAPNsToken()
                let early = event(known, tokens: [phone], ["app": .string(name)])
                try await stack.send(early.request)
                let letter = try await stack.deadLetters(1, key: early.id).first
                #expect(letter?.header("error.reason") == "unknown_app")
                let app = try await stack.makeApp(named: name)
                let late = event(app, tokens: [phone])
                try await stack.send(late.request)
                #expect(try await stack.finishedPush(event: late.id)["delivered"] == 1)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("A row whose claim's reply was lost is found and sent by the session that owns it")
        func strayRow() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start("carillon-dispatcher")
                let phone = makeAPNsToken()
                // A claim whose reply was lost leaves this: the session lives and does not know the
                // row.
                _ = try await eventually("the session owns a row") {
                    let made = try await stack.database.query(
                        """
                        with session as (select id from dispatchers limit 1), push as (
                            insert into pushes (id, app, event_source, event_id, request, status,
                                lane, targeted, pending, planned_until)
                            select gen_random_uuid(), '\(app.id)', 'e2e', 'stray',
                                '\(event(app, tokens: [phone]).request.text)', 'sending', 0, 1, 1,
                                now()
                            from session returning id, created_at)
                        insert into deliveries (day, push_id, target, app, provider, environment,
                            token, lane, owner)
                        select (push.created_at at time zone 'UTC')::date, push.id, 'stray',
                            '\(app.id)', 'apns', 'production', '\(phone)', 0, session.id
                        from push, session returning 1
                        """
                    )
                    return made.isEmpty ? nil : true
                }
                // Claims are interrupted, as by a broken connection.
                _ = try await stack.database.query(
                    """
                    begin;
                    lock table deliveries in access exclusive mode;
                    do $$
                        declare claim integer;
                    begin
                        loop
                            select pid into claim from pg_stat_activity
                            where wait_event_type = 'Lock' and query like '%UPDATE deliveries d%'
                                and pg_backend_pid() = any (pg_blocking_pids(pid)) limit 1;
                            exit when claim is not null;
                            perform pg_sleep(0.01);
                            perform pg_stat_clear_snapshot();
                        end loop;
                        perform pg_terminate_backend(claim);
                    end $$;
                    commit
                    """
                )
                let push = try await stack.finishedPush(event: "stray")
                #expect(push["delivered"] == 1)
                #expect(try await stack.simulator.received(for: phone).count == 1)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("A lost session loses no event, and a later answer for it is dropped")
        func lostSession() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start("carillon-dispatcher")
                let phone = makeAPNsToken()
                // The first answer comes long after the session was lost.
                try await stack.simulator.setRules([
                    [
                        "provider": "apns", "token": .string(phone), "delayMs": [8000, 8000],
                        "times": 1,
                    ]
                ])
                let (id, request) = event(app, tokens: [phone])
                try await stack.send(request)
                _ = try await eventually("it is in flight") {
                    try await metric("push_deliveries_in_flight", dispatcher) == 1 ? true : nil
                }
                _ = try await stack.database.query("delete from dispatchers")
                let push = try await stack.finishedPush(event: id)
                #expect(push["delivered"] == 1 && push["targeted"] == 1)
                _ = try await eventually("the late answer has come") {
                    let attempts = try await metric("push_delivery_attempts_total", dispatcher)
                    let inFlight = try await metric("push_deliveries_in_flight", dispatcher)
                    return attempts == 2 && inFlight == 0 ? true : nil
                }
                let (_, marker) = event(app, tokens: [makeAPNsToken()])
                try await stack.send(marker)
                _ = try await eventually("what was recorded after it is there") {
                    try await stack.kafka.records(on: stack.topic("push.outcomes")).count == 2
                        ? true : nil
                }
                #expect(try await stack.outcomes(1, event: id).count == 1)
                let names = try await stack.simulator.received(for: phone)
                #expect(
                    names.count == 2 && Set(names.compactMap { $0.header("apns-id") }).count == 1
                )
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("A delivery that outlasts DISPATCH_HOLD is a row of its session, and ends as one")
        func heldTooLong() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start(
                    "carillon-dispatcher",
                    ["DISPATCH_HOLD": "100ms"]
                )
                let (slow, quick) = (makeAPNsToken(), makeAPNsToken())
                try await stack.simulator.setRules([
                    ["provider": "apns", "token": .string(slow), "delayMs": [3000, 3000]]
                ])
                let (id, request) = event(app, tokens: [slow, quick])
                try await stack.send(request)
                _ = try await eventually("the slow one is a row of the session") {
                    let rows = try await stack.database.query(
                        """
                        select state, owner = (select max(id) from dispatchers) from deliveries
                        order by state
                        """
                    )
                    return rows == ["0|t", "1|"] ? true : nil
                }
                #expect(try await stack.finishedPush(event: id)["delivered"] == 2)
                for token in [slow, quick] {
                    #expect(try await stack.simulator.received(for: token).count == 1)
                }
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("A push that names 200 devices takes the fast path, and is one row")
        func manyNamed() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start(
                    "carillon-dispatcher",
                    ["DISPATCH_HOLD": "10s"]
                )
                let tokens = (0..<200).map { _ in makeAPNsToken() }
                let (id, request) = event(app, tokens: tokens)
                try await stack.send(request)
                #expect(try await stack.finishedPush(event: id)["delivered"] == 200)
                for token in tokens {
                    #expect(try await stack.simulator.received(for: token).count == 1)
                }
                #expect(
                    try await stack.database.query(
                        """
                        select (select count(*) from deliveries),
                            (select string_agg(jsonb_array_length(deliveries)::text, ' ')
                                from event_pushes)
                        """
                    ) == ["0|200"]
                )
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        /// Registers Android phones, named by their numbers.
        private func register(
            _ numbers: ClosedRange<Int>,
            of app: Stack.App,
            _ stack: Stack
        ) async throws {
            _ = try await stack.database.query(
                """
                insert into installations (app, object_id, device_type, provider, token,
                    token_hash, token_updated_at, created_at)
                select '\(app.id)', 'phone-' || n, 'android', 'fcm', 'token-' || n,
                    sha256(convert_to('token-' || n, 'UTF8')), now() - interval '1 h',
                    now() - interval '1 h'
                from generate_series(\(numbers.lowerBound), \(numbers.upperBound)) n
                """
            )
        }

        @Test(
            "Promise 3: kill -9 during pushes to 600 named devices misses no device, with bounded repeats",
            .timeLimit(.minutes(2))
        )
        func killedAmidNamed() async throws {
            let settings = [
                "DISPATCH_IN_FLIGHT": "400", "DISPATCH_CHECKPOINT_EVERY": "200",
                "DISPATCH_SHARDS": "4",
            ]
            try await Stack.with(settings) { stack in
                let app = try await stack.makeApp()
                try await register(1...12_000, of: app, stack)
                try await stack.simulator.setRules([["provider": "fcm", "delayMs": [20, 60]]])
                let first = try await stack.start("carillon-dispatcher")
                for push in 0..<20 {
                    let names = (1...600).map { "phone-\(push * 600 + $0)" }
                    try await stack.send([
                        "id": .string("named-\(push)"), "app": .string(app.id),
                        "data": ["alert": "x"],
                        "installations": .array(names.map(JSONValue.string)),
                    ])
                }
                _ = try await eventually("a third was sent") {
                    try await stack.simulator.count("fcm", status: 200) >= 4000 ? true : nil
                }
                first.process.signal(SIGKILL)
                #expect(await first.process.exit() == .signal(SIGKILL))
                let second = try await stack.start("carillon-dispatcher")
                _ = try await eventually("all pushes are done", within: .seconds(60)) {
                    try await count("select count(*) from pushes where status = 'done'", stack)
                        == 20 ? true : nil
                }
                #expect(
                    try await stack.database.query(
                        """
                        select sum(targeted), sum(delivered), sum(pending),
                            (select count(distinct target) from all_deliveries),
                            (select count(*) from shards where not finished or owner is not null)
                        from pushes
                        """
                    ) == ["12000|12000|0|12000|0"]
                )
                let sent = try await stack.simulator.count("fcm", status: 200)
                #expect(sent >= 12_000 && sent <= 12_000 + 4 * 200 + 400, "\(sent) requests")
                #expect(await second.process.stop() == .status(0))
            }
        }

        @Test("A push that names 600 devices is a shard, with rows for unreachable ones")
        func namedShard() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start("carillon-dispatcher")
                try await register(1...600, of: app, stack)
                _ = try await stack.database.query(
                    "update installations set valid = false where object_id = 'phone-7'"
                )
                let id = TestEnvironment.unique("named-")
                let names = (1...600).map { "phone-\($0)" } + ["stranger", "phone-1"]
                try await stack.send([
                    "id": .string(id), "app": .string(app.id), "data": ["alert": "x"],
                    "installations": .array(names.map(JSONValue.string)),
                ])
                let push = try await stack.finishedPush(event: id)
                #expect(push["targeted"] == 600 && push["delivered"] == 599)
                #expect(push["suppressed"] == 1)
                for number in [1, 2, 300, 600] {
                    #expect(try await stack.simulator.received(for: "token-\(number)").count == 1)
                }
                #expect(try await stack.simulator.received(for: "token-7").isEmpty)
                #expect(
                    try await stack.database.query(
                        """
                        select lane, finished, members is null,
                            (select count(*) from deliveries where target = 'phone-7')
                        from shards
                        """
                    ) == ["0|t|t|1"]
                )
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test(
            "Without a credential a delivery fails before its payload is checked, and no token dies"
        )
        func noCredential() async throws {
            try await Stack.with { stack in
                let id = TestEnvironment.unique("bare-")
                try await stack.carillon("app", "create", id)
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, token_updated_at, created_at)
                    values ('\(id)', 'phone', 'android', 'fcm', 'token', sha256('token'),
                        now() - interval '1 h', now() - interval '1 h')
                    """
                )
                let dispatcher = try await stack.start("carillon-dispatcher")
                // It is too large for FCM, but not for WNS.
                let alert = JSONValue.string(String(repeating: "x", count: 4500))
                try await stack.send([
                    "id": "bare", "source": "e2e", "app": .string(id), "installations": ["phone"],
                    "data": ["alert": alert],
                ])
                #expect(try await stack.finishedPush(event: "bare")["failed"] == 1)
                let outcome = try await stack.outcomes(1, event: "bare").first
                #expect(outcome?["reason"] == "no credential for this provider")
                #expect(
                    try await stack.database.query("select valid from installations") == ["t"]
                )
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("Members of a healthy provider do not wait for those of a failing one")
        func otherProvider() async throws {
            try await Stack.with(["DISPATCH_IN_FLIGHT": "256"]) { stack in
                let app = try await stack.makeApp()
                let (sick, well) = (400, 100)
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, environment, apns_topic, token_updated_at, created_at)
                    select '\(app.id)', lpad(to_hex(n), 24, '0'), 'any',
                        case when n <= \(sick) then 'fcm' else 'apns' end, token,
                        sha256(convert_to(token, 'UTF8')),
                        case when n <= \(sick) then '' else 'production' end,
                        case when n <= \(sick) then null else '\(app.bundleID)' end,
                        now() - interval '1 h', now() - interval '1 h'
                    from (select n, encode(sha256(convert_to('\(app.id)' || n, 'UTF8')), 'hex')
                        as token from generate_series(1, \(sick + well)) n) phones
                    """
                )
                try await stack.simulator.setRules([["provider": "fcm", "status": 503]])
                let dispatcher = try await stack.start("carillon-dispatcher")
                try await stack.send([
                    "id": "mixed", "source": "e2e", "app": .string(app.id),
                    "data": ["alert": "To everybody"],
                ])
                _ = try await eventually("all of the one that is well are sent to") {
                    try await stack.simulator.count("apns", status: 200) == well ? true : nil
                }
                let tries = try await stack.simulator.count("fcm", status: 503)
                #expect(tries < sick, "the breaker never opened: nothing was tried here")
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("While Kafka rejects outcomes no result is stored, and each outcome is produced once")
        func outcomesFirst() async throws {
            let cluster = try MockKafkaCluster()
            defer { cluster.close() }
            let prefix = TestEnvironment.unique("e2e-") + "."
            for topic in Stack.topics { try cluster.createTopic(prefix + topic, partitions: 4) }
            let settings = [
                "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrapServers, "KAFKA_TOPIC_PREFIX": prefix,
            ]
            try await Stack.with(settings) { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start(
                    "carillon-dispatcher",
                    ["DISPATCH_HOLD": "10s"]
                )
                let phones = (0..<16).map { _ in makeAPNsToken() }
                try await stack.simulator.setRules([["provider": "apns", "delayMs": [2000, 2000]]])
                let (id, request) = event(app, tokens: phones)
                try await stack.send(request)
                // These are two rounds of all four partitions, and half of the third.
                cluster.refuse(.produce, with: .invalidRecord, times: 10)
                let reason = try await eventually("it says what is wrong") {
                    try await notReady(dispatcher)
                }
                #expect(reason.contains("\"deliveries\""))
                #expect(try await count("select count(*) from all_pushes", stack) == 0)
                let push = try await stack.finishedPush(event: id)
                #expect(push["delivered"]?.integer == phones.count)
                _ = try await eventually("it is ready again") {
                    try await notReady(dispatcher) == nil ? true : nil
                }
                #expect(try await stack.outcomes(1, event: id).count == phones.count)
                for phone in phones {
                    #expect(try await stack.simulator.received(for: phone).count == 1)
                }
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test(
            "While Postgres rejects results it is not ready, with the reason, and stores them later"
        )
        func ledgerAway() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start("carillon-dispatcher")
                _ = try await stack.database.query(
                    """
                    create function no_space() returns trigger language plpgsql as
                        $$ begin raise exception using errcode = '53100'; end $$
                    """
                )
                for table in ["event_pushes", "pushes"] {
                    _ = try await stack.database.query(
                        """
                        create trigger no_space before insert on \(table)
                        for each row execute function no_space()
                        """
                    )
                }
                let phone = makeAPNsToken()
                let lane = event(app, tokens: [phone])
                let rows = event(app, tokens: [phone], ["notification_id": "label"])
                try await stack.send(lane.request, rows.request)
                _ = try await eventually("it says what is wrong, of both") {
                    let reasons = try await notReady(dispatcher) ?? ""
                    return reasons.contains("\"intake\"") && reasons.contains("\"deliveries\"")
                        ? true : nil
                }
                // Its outcome came first.
                #expect(try await stack.outcomes(1, event: lane.id).count == 1)
                for table in ["event_pushes", "pushes"] {
                    _ = try await stack.database.query("drop trigger no_space on \(table)")
                }
                for id in [lane.id, rows.id] {
                    #expect(try await stack.finishedPush(event: id)["delivered"] == 1)
                }
                _ = try await eventually("it is ready again") {
                    try await notReady(dispatcher) == nil ? true : nil
                }
                #expect(try await stack.simulator.received(for: phone).count == 2)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("A change whose notification was lost with a connection to Postgres is read after it")
        func lostNotice() async throws {
            try await Stack.with { stack in
                let (app, other) = (try await stack.makeApp(), try await stack.makeApp())
                let dispatcher = try await stack.start("carillon-dispatcher")
                let phone = makeAPNsToken()
                try await stack.carillon("app", "set", other.id, "receipts=on")
                try await stack.send(event(app, tokens: [phone]).request)
                let first = try await stack.simulator.waitFor(1, for: phone)
                #expect(first.last?.body["pushId"] == nil)
                // There is no notification of it.
                _ = try await stack.database.query(
                    """
                    update apps set settings = (select settings from apps where id = '\(other.id)')
                    where id = '\(app.id)'
                    """
                )
                _ = try await eventually("its listening connection is gone") {
                    let ended = try await stack.database.query(
                        """
                        select pg_terminate_backend(pid) from pg_stat_activity
                        where datname = current_database() and query ilike 'listen %'
                        """
                    )
                    return ended.isEmpty ? nil : true
                }
                var count = 1
                // Without it the change would be read half a minute after the first.
                _ = try await eventually("the change is taken up", within: .seconds(20)) {
                    try await stack.send(event(app, tokens: [phone]).request)
                    count += 1
                    let last = try await stack.simulator.waitFor(count, for: phone).last
                    return last?.body["pushId"] == nil ? nil : true
                }
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("An outcome is keyed by its target and counts attempts, and the metrics agree")
        func outcomes() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let dispatcher = try await stack.start("carillon-dispatcher")
                let token = makeAPNsToken()
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, environment, apns_topic, token_updated_at, created_at)
                    select '\(app.id)', id, 'ios', 'apns', token,
                        sha256(convert_to(token, 'UTF8')), 'production', '\(app.bundleID)',
                        now() - interval '1 h', now() - interval '1 h'
                    from (values ('reached', '\(token)'), ('muted', null)) as i(id, token)
                    """
                )
                let named = TestEnvironment.unique("named-")
                let toNames: JSONValue = [
                    "id": .string(named), "source": "e2e", "app": .string(app.id),
                    "installations": ["reached", "muted"], "data": ["alert": "x"],
                ]
                let byToken = event(app, tokens: [token])
                try await stack.send(toNames, byToken.request)
                for id in [named, byToken.id] { _ = try await stack.finishedPush(event: id) }
                // It is sent twice and is a duplicate.
                try await stack.send(toNames)
                _ = try await eventually("the repeat is counted") {
                    try await metric("push_events_total", dispatcher, "repeated") == 1 ? true : nil
                }
                let records = try await stack.kafka.records(on: stack.topic("push.outcomes"))
                let hash = try await stack.database.query(
                    "select encode(sha256(convert_to('\(token)', 'UTF8')), 'hex')"
                )[0]
                #expect(Set(records.compactMap(\.key)) == ["reached", "muted", hash])
                #expect(records.count == 3)
                for record in records {
                    let isMuted = record.key == "muted"
                    #expect(record.json?["attempt"]?.integer == (isMuted ? 0 : 1))
                    #expect(record.json?["outcome"] == (isMuted ? "suppressed" : "delivered"))
                }
                #expect(try await metric("push_events_total", dispatcher, "planned") == 2)
                #expect(try await metric("push_delivery_attempts_total", dispatcher) == 2)
                let ended = "push_deliveries_total"
                #expect(try await metric(ended, dispatcher, #"outcome="delivered""#) == 2)
                #expect(try await metric(ended, dispatcher, #"outcome="suppressed""#) == 1)
                #expect(try await metric("push_deliveries_in_flight", dispatcher) == 0)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }
    }
}
