import Foundation
import JSON
import Support
import Testing

/// The explanation of one push and one device, by HTTP, by the command and on the console's page, which
/// must agree.
struct Explainer {
    let stack: Stack
    let registration: String
    let app: Stack.App

    /// Expects a reason over HTTP, and the same reason and sentence from the command; returns the
    /// response. Without a push it asks why the device gets none at all. A sentence that is not
    /// `isSteady` changes while the services run.
    @discardableResult
    func expect(
        _ push: String?,
        _ installation: String,
        _ reason: String,
        _ words: String...,
        isSteady: Bool = true,
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws -> JSONValue {
        let path =
            push.map { "v1/notifications/\($0)/explain?installation=\(installation)" }
            ?? "v1/installations/\(installation)/explain"
        let answer = try await http(
            "GET",
            "\(registration)/\(path)",
            headers: app.masterHeaders
        )
        #expect(answer.status == 200, "\(answer.text)", sourceLocation: sourceLocation)
        let json = try #require(answer.json, sourceLocation: sourceLocation)
        #expect(json["reason"]?.string == reason, "\(json)", sourceLocation: sourceLocation)
        let sentence = json["sentence"]?["text"]?.string ?? ""
        for word in words {
            #expect(sentence.contains(word), "\(sentence)", sourceLocation: sourceLocation)
        }
        #expect(json["steps"]?.array?.count == 5, sourceLocation: sourceLocation)
        let command =
            push.map { ["push", "explain", $0, installation] }
            ?? ["installations", "explain", app.id, installation]
        let text = try await carillon(command)
        #expect(text.contains(reason), "\(text)", sourceLocation: sourceLocation)
        if isSteady { #expect(text.contains(sentence), "\(text)", sourceLocation: sourceLocation) }
        let told = try JSONValue.parse(try await carillon(command + ["--json"]))
        #expect(told["reason"]?.string == reason, sourceLocation: sourceLocation)
        #expect(told["payload"]?["content"] == nil, sourceLocation: sourceLocation)
        let page = try await page(push, installation)
        if isSteady {
            #expect(
                page.contains(Self.plain(sentence)),
                "\(sentence): \(page)",
                sourceLocation: sourceLocation
            )
        }
        return json
    }

    /// Returns a text without times and separators of thousands: a page writes them as its reader does.
    private static func plain(_ text: String) -> String {
        text.replacing(/(\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC)/, with: "T")
            .replacing(/(\d),(\d{3})/) { "\($0.1)\($0.2)" }
    }

    /// Returns the text of the console's page, as a person with the master key reads it.
    private func page(_ push: String?, _ installation: String) async throws -> String {
        var browser = Browser(registration)
        let signedIn = try await browser.post(
            "/console/sign-in",
            ["app": app.id, "key": app.masterKey]
        )
        #expect(signedIn.status == 303)
        let query = push.map { "push=\($0)&installation=" } ?? "installation="
        let page = try await browser.get("/console/\(app.id)/explain?\(query)\(installation)")
        #expect(page.status == 200)
        let text = page.text.replacing(/<[^>]*>/, with: "")
            .replacing("&quot;", with: "\"").replacing("&#39;", with: "'")
            .replacing("&amp;", with: "&")
        return Self.plain(text)
    }

    private func carillon(_ words: [String]) async throws -> String {
        try await run(
            Stack.executable("carillon"),
            words,
            environment: stack.environment
        ).successful("\(words)")
    }
}

extension EndToEndTests {
    /// Ten reasons why a phone got nothing, each made as it happens in production.
    @Suite("Why a phone got nothing", .runningStack, .serialized, .timeLimit(.minutes(3)))
    struct ExplainTests {
        private func explainer(_ bench: Bench) -> Explainer {
            Explainer(stack: bench.stack, registration: bench.registration, app: bench.app)
        }

        /// Sends an event to a channel, and returns its finished push.
        private func push(
            _ bench: Bench,
            to channel: String,
            _ more: JSONObject = [:]
        ) async throws -> String {
            let (id, event) = bench.event([channel])
            var request = event.object ?? [:]
            for (key, value) in more { request[key] = value }
            try await bench.stack.send(.object(request))
            return try #require(try await bench.stack.finishedPush(event: id)["pushId"]?.string)
        }

        private func change(_ bench: Bench, _ installation: String, _ body: JSONValue) async throws
        {
            let answer = try await http(
                "PUT",
                "\(bench.registration)/1.1/installations/\(installation)",
                headers: bench.app.clientHeaders,
                body: body
            )
            #expect(answer.status == 200, "\(answer.text)")
        }

        @Test("It was not in the audience then, and would be now")
        func notThen() async throws {
            let bench = try await Bench()
            let phone = try await bench.registerPhone(token: makeAPNsToken(), channels: ["chess"])
            let sent = try await push(bench, to: "football")
            let explainer = explainer(bench)
            try await explainer.expect(sent, phone, "notInAudience", "channels contains one of")
            try await change(bench, phone, ["channels": ["football"]])
            let found = try await explainer.expect(
                sent,
                phone,
                "notInAudienceThen",
                "It would be now"
            )
            let clause = found["audience"]?.array?.first {
                $0["condition"]?.string?.hasPrefix("channels") == true
            }
            #expect(clause?["now"] == true && clause?["then"] == .null)
            #expect(clause?["value"] == "football")
            try await explainer.expect(nil, phone, "reachable")
        }

        @Test("Its token was rejected, by this push and before the next")
        func invalidToken() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            let phone = try await bench.registerPhone(token: token, channels: ["a"])
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(token), "status": 410,
                    "reason": "Unregistered",
                ]
            ])
            let (first, second) = (
                try await push(bench, to: "a"), try await push(bench, to: "a")
            )
            let explainer = explainer(bench)
            let by = try await explainer.expect(first, phone, "tokenInvalid", "this push")
            let attempt = by["attempts"]?.array?.first
            #expect(attempt?["status"] == 410)
            let received = try await bench.simulator.received(for: token).first
            #expect(attempt?["messageId"]?.string == received?.header("apns-id"))
            try await explainer.expect(
                second,
                phone,
                "tokenInvalid",
                "before this push",
                "by APNs: Unregistered"
            )
            try await explainer.expect(nil, phone, "tokenInvalid", "Unregistered")
            #expect(!JSONValue.object(by.object ?? [:]).text.contains(token))
        }

        @Test("The app muted it, and when")
        func muted() async throws {
            let bench = try await Bench()
            let phone = try await bench.registerPhone(token: makeAPNsToken(), channels: ["a"])
            try await change(bench, phone, ["valid": false])
            let sent = try await push(bench, to: "a")
            try await explainer(bench).expect(sent, phone, "muted", "The app muted it at 20")
            try await explainer(bench).expect(nil, phone, "muted", "The app muted it at 20")
        }

        @Test("Its token is of the other environment")
        func environment() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            let phone = try await bench.register([
                "deviceType": "ios", "deviceToken": .string(token),
                "apnsTopic": .string(bench.app.bundleID), "channels": ["a"],
            ])
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(token), "status": 400,
                    "reason": "BadDeviceToken",
                ]
            ])
            let sent = try await push(bench, to: "a")
            let found = try await explainer(bench).expect(
                sent,
                phone,
                "wrongEnvironment",
                "belong to production",
                "belongs to sandbox"
            )
            #expect(found["nextStep"]?["text"]?.string?.contains("apnsEnvironment") == true)
        }

        @Test("With its name the payload was too large")
        func tooLarge() async throws {
            let bench = try await Bench()
            let phone = try await bench.register([
                "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                "apnsTopic": .string(bench.app.bundleID), "channels": ["a"],
                "name": .string(String(repeating: "x", count: 5000)),
            ])
            let sent = try await push(bench, to: "a", ["data": ["alert": "Hello {{name}}"]])
            try await explainer(bench).expect(
                sent,
                phone,
                "tooLarge",
                "With this device's values",
                "is 4096"
            )
        }

        @Test("An operator cancelled the push")
        func cancelled() async throws {
            let bench = try await Bench()
            let phone = try await bench.registerPhone(token: makeAPNsToken(), channels: ["a"])
            let planned = try await bench.stack.carillon(
                "push",
                "send",
                bench.app.id,
                "--channel",
                "a",
                "--alert",
                "Later",
                "--at",
                "2036-11-21T09:00:00Z",
                "--json"
            )
            let id = try #require(try JSONValue.parse(planned)["pushId"]?.string)
            _ = try await eventually("it is scheduled") {
                let rows = try await bench.stack.database.query(
                    "select status from pushes where id = '\(id)'"
                )
                return rows == ["scheduled"] ? true : nil
            }
            try await explainer(bench).expect(id, phone, "scheduled", "2036-11-21 09:00:00 UTC")
            try await bench.stack.carillon("push", "cancel", id)
            try await explainer(bench).expect(id, phone, "cancelled", "cli:", "cancelled the push")
        }

        @Test("The provider accepted it, and the device reported nothing since")
        func neverConnected() async throws {
            let bench = try await Bench()
            let phone = try await bench.register([
                "deviceType": "android", "registrationId": .string(TestEnvironment.unique("reg:")),
                "channels": ["a"],
            ])
            let sent = try await push(bench, to: "a", ["expiration_interval": 3600])
            let found = try await explainer(bench).expect(
                sent,
                phone,
                "neverConnected",
                "FCM accepted it at",
                "stores it until",
                "reported nothing since"
            )
            #expect(found["attempts"]?.array?.first?["status"] == 200)
            #expect(found["causes"]?.array?.first?["rank"] == "likely")
            #expect(found["payload"]?["content"]?.string?.contains("Ding dong") == true)
        }

        @Test("It was deleted after planning and before its turn")
        func suppressed() async throws {
            let bench = try await Bench()
            let phone = try await bench.registerPhone(token: makeAPNsToken(), channels: ["a"])
            let id = "6b1f0c52-0000-4000-8000-\(UInt32.random(in: 10_000_000 ..< .max))00".prefix(
                36
            )
            let push = String(id) + String(repeating: "0", count: 36 - id.count)
            // The push is planned, and its shard waits; a dispatcher would send it at once.
            _ = try await bench.stack.database.query(
                """
                with p as (
                    insert into pushes (id, app, event_source, event_id, request, status, lane,
                        targeted, pending, planned_until, open_shards)
                    values ('\(push)', '\(bench.app.id)', 'e2e', 'gone',
                        '{"where": {"city": "Oslo"}, "data": {"alert": "x"}}', 'sending', 1, 1, 1,
                        now(), 1) returning id, app, created_at)
                insert into shards (push_id, shard, app, day, pushed_at, upper_id, expected, members,
                    due_at)
                select id, 0, app, (created_at at time zone 'UTC')::date, created_at, '\(phone)', 1,
                    '{\(phone)}', now() + interval '1 h' from p returning 1
                """
            )
            try await explainer(bench).expect(push, phone, "waiting")
            let deleted = try await http(
                "DELETE",
                "\(bench.registration)/1.1/installations/\(phone)",
                headers: bench.app.masterHeaders
            )
            #expect(deleted.status == 200)
            _ = try await eventually("the audit has it") {
                let rows = try await bench.stack.database.query(
                    "select 1 from audit where targets @> '{\(phone)}'"
                )
                return rows.isEmpty ? nil : true
            }
            _ = try await bench.stack.database.query(
                """
                update shards set due_at = now() where push_id = '\(push)' returning
                    pg_notify('carillon_shards', '')
                """
            )
            _ = try await eventually("the dispatcher has ended the push") {
                let rows = try await bench.stack.database.query(
                    "select status from pushes where id = '\(push)'"
                )
                return rows == ["done"] ? true : nil
            }
            try await explainer(bench).expect(
                push,
                phone,
                "suppressed",
                "after planning and before its turn"
            )
        }

        @Test("Bad requests are refused with the name of the parameter, and unknown names with 404")
        func refusals() async throws {
            let bench = try await Bench()
            let phone = try await bench.registerPhone(token: makeAPNsToken(), channels: ["a"])
            let sent = try await push(bench, to: "a")
            for (path, status, word) in [
                ("notifications/\(sent)/explain", 400, "installation"),
                ("notifications/\(sent)/explain?installation=", 400, "installation"),
                ("notifications/\(sent)/explain?installation=%01", 400, "installation"),
                ("notifications/none/explain?installation=\(phone)", 404, "no such push"),
                ("installations/nobody/explain", 404, "no such installation"),
            ] {
                let answer = try await http(
                    "GET",
                    "\(bench.registration)/v1/\(path)",
                    headers: bench.app.masterHeaders
                )
                #expect(answer.status == status, "\(path)")
                #expect(answer.header("content-type") == "application/problem+json")
                #expect(answer.json?["detail"]?.string?.contains(word) == true, "\(answer.text)")
            }
            let other = try await bench.stack.makeApp()
            for (headers, status) in [
                (bench.app.clientHeaders, 403), (other.masterHeaders, 404),
            ] {
                let answer = try await http(
                    "GET",
                    "\(bench.registration)/v1/notifications/\(sent)/explain?installation=\(phone)",
                    headers: headers
                )
                #expect(answer.status == status)
            }
        }

        @Test("Its turn came after the push had expired")
        func expired() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let registration = try await stack.start("carillon-registration")
                let explainer = Explainer(stack: stack, registration: registration.url, app: app)
                let phone =
                    try await http(
                        "POST",
                        "\(registration.url)/1.1/installations",
                        headers: app.clientHeaders,
                        body: [
                            "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                            "apnsTopic": .string(app.bundleID), "channels": ["a"],
                        ]
                    ).json?["objectId"]?.string ?? ""
                let sent = try await http(
                    "POST",
                    "\(registration.url)/1.1/push",
                    headers: app.masterHeaders,
                    body: [
                        "channels": ["a"], "data": ["alert": "Soon"], "expiration_interval": 1,
                    ]
                )
                let push = try #require(sent.json?["objectId"]?.string, "\(sent.text)")
                try await explainer.expect(push, phone, "accepting")
                _ = try await eventually("it has expired") {
                    let rows = try await stack.database.query(
                        "select expires_at < now() from pushes where id = '\(push)'"
                    )
                    return rows == ["t"] ? true : nil
                }
                let dispatcher = try await stack.start("carillon-dispatcher")
                _ = try await eventually("it has ended") {
                    let rows = try await stack.database.query(
                        "select status from pushes where id = '\(push)'"
                    )
                    return rows == ["done"] ? true : nil
                }
                try await explainer.expect(push, phone, "expired", "after the push had expired")
                #expect(await dispatcher.process.stop() == .status(0))
                #expect(await registration.process.stop() == .status(0))
            }
        }

        @Test("The provider does not answer, and its circuit breaker is open")
        func breaker() async throws {
            try await Stack.with(["DISPATCH_IN_FLIGHT": "256"]) { stack in
                let app = try await stack.makeApp()
                let registration = try await stack.start("carillon-registration")
                let explainer = Explainer(stack: stack, registration: registration.url, app: app)
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, token_updated_at, created_at)
                    select '\(app.id)', lpad(to_hex(n), 24, '0'), 'android', 'fcm', token,
                        sha256(convert_to(token, 'UTF8')), now() - interval '1 h',
                        now() - interval '1 h'
                    from (select n, encode(sha256(convert_to('\(app.id)' || n, 'UTF8')), 'hex')
                        as token from generate_series(1, 400) n) phones
                    """
                )
                try await stack.simulator.setRules([["provider": "fcm", "status": 503]])
                let dispatcher = try await stack.start("carillon-dispatcher")
                try await stack.send([
                    "id": "sick", "source": "e2e", "app": .string(app.id),
                    "data": ["alert": "To everybody"],
                ])
                let push = try await eventually("its breaker is open, and the shard waits") {
                    try await stack.database.query(
                        """
                        select p.id from pushes p join shards s on s.push_id = p.id
                        where (select count(*) from deliveries d where d.push_id = p.id) >= 50
                            and s.owner is null and s.due_at > now() and exists (
                                select from service_instances
                                where state->'breakers'->0->>'app' = p.app)
                        """
                    ).first
                }
                let last = "000000000000000000000190"
                let found = try await explainer.expect(
                    push,
                    last,
                    "breaker",
                    "FCM has not accepted deliveries of this app since",
                    isSteady: false
                )
                #expect(found["steps"]?.array?[2]["state"] == "stopped")
                try await explainer.expect(nil, last, "breaker", isSteady: false)

                // Devices that are named one by one have rows, which say why they wait.
                let names = (1...60).map { String(format: "%024x", $0) }
                try await stack.send([
                    "id": "named", "source": "e2e", "app": .string(app.id),
                    "data": ["alert": "To some"],
                    "installations": .array(names.map(JSONValue.string)),
                ])
                let row = try await eventually("a row waits for the breaker") {
                    try await stack.database.query(
                        """
                        select push_id || ' ' || target from deliveries
                        where last_reason = 'the provider''s circuit breaker is open'
                            and push_id <> '\(push)' and state = 0 and due_at > now() + interval '4 s'
                        limit 1
                        """
                    ).first?.split(separator: " ").map(String.init)
                }
                try await explainer.expect(
                    row[0],
                    row[1],
                    "breaker",
                    "This one is due at about",
                    isSteady: false
                )
                #expect(await dispatcher.process.stop() == .status(0))
                #expect(await registration.process.stop() == .status(0))
            }
        }
    }
}
