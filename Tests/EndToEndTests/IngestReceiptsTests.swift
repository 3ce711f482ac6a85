import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Opens and receipts are counted once, beside the ledger",
        .runningIngest(withPushes: true),
        .serialized,
        needsBroker,
        .timeLimit(.minutes(10))
    )
    struct IngestReceiptsTests {
        private static let installations = 1000

        @Test("A device gets the push id if the app has receipts=on, and only then")
        func pushIDs() async throws {
            let phone = try await Phone()
            let silent = try await phone.push()
            #expect(silent.received.body["pushId"] == nil)
            try await phone.bench.stack.carillon("app", "set", phone.bench.app.id, "receipts=on")
            // A process with the app in its cache is notified within a few seconds.
            let push = try await eventually("a push with its id") {
                let push = try await phone.push()
                return push.received.body["pushId"] == .string(push.id) ? push : nil
            }
            let books = try await phone.bench.stack.finishedPush(event: push.event)
            #expect(books.booksBalance && books["opens"] == 0 && books["received"] == 0)
        }

        @Test("10,000 opens and receipts with repeats and forgeries give exact counts")
        func counts() async throws {
            let phone = try await Phone()
            let (bench, app) = (phone.bench, phone.bench.app)
            try await bench.stack.carillon("app", "set", app.id, "receipts=on")
            let push = try await phone.push()
            let other = try await phone.push()
            let stranger = try await IngestBench(declares: nil)

            var opened: [JSONValue] = []
            var received: [JSONValue] = []
            func report(_ push: String, _ installation: String? = nil) -> JSONObject {
                var report: JSONObject = [
                    "_id": .string(UUID().uuidString.lowercased()), "pushId": .string(push),
                    "at": "2026-01-01T00:00:00.000Z",
                ]
                report["installationId"] = installation.map(JSONValue.string)
                return report
            }
            // Each device reports under new ids repeatedly, and counts once.
            let devices = (0..<Self.installations).map { _ in UUID().uuidString.lowercased() }
            for device in devices {
                for _ in 0..<5 { received.append(.object(report(push.id, device))) }
                for _ in 0..<3 where device < "8" {
                    opened.append(.object(report(push.id, device)))
                }
            }
            let openers = devices.count { $0 < "8" }
            // A report without a device counts each time, but a repeat of the same object does not.
            for _ in 0..<500 {
                let nameless = JSONValue.object(report(push.id))
                opened += [nameless, nameless]
                var byEvent = report(push.id)
                byEvent["pushId"] = nil
                byEvent["eventId"] = .string(push.event)
                received += [.object(byEvent), .object(byEvent)]
            }
            // They name another push of the app, an unknown one, and this one with another app's
            // key.
            for _ in 0..<100 {
                opened.append(.object(report(other.id, UUID().uuidString)))
                opened.append(.object(report(UUID().uuidString, UUID().uuidString)))
            }
            let forged = (0..<500).map { _ in JSONValue.object(report(push.id, UUID().uuidString)) }
            try await Self.send(forged, "PushOpened", by: stranger)
            opened.shuffle()
            received.shuffle()
            try await Self.send(opened, "PushOpened", by: bench)
            try await Self.send(received, "PushReceived", by: bench)
            try await Self.send(Array(received.prefix(1000)), "PushReceived", by: bench)
            let total = forged.count + opened.count + received.count + 1000
            #expect(total >= 10_000, "\(total)")
            print("opens and receipts: \(total) reports")
            // An invalid report is refused.
            for body: JSONValue in [
                ["_id": .string(IngestBench.makeID())],
                ["_id": .string(IngestBench.makeID()), "pushId": "not-a-uuid"],
                ["_id": .string(IngestBench.makeID()), "pushId": .string(push.id), "at": "noon"],
            ] {
                let answer = try await bench.post("/v1/ingest/PushOpened", body)
                #expect(answer.status == 200 && answer.json?["refused"]?.array?.count == 1)
            }

            try await bench.fence("PushOpened")
            try await bench.fence("PushReceived")
            let wanted = (opens: openers + 500, received: devices.count + 500)
            for (one, wanted) in [(push, wanted), (other, (opens: 100, received: 0))] {
                let shown = try JSONValue.parse(
                    try await bench.stack.carillon("push", "show", one.id, "--json")
                )
                #expect(shown["opens"]?.integer == wanted.opens)
                #expect(shown["received"]?.integer == wanted.received)
                #expect(shown.booksBalance && shown["delivered"] == 1, "\(shown.text)")
                let answer = try await http(
                    "GET",
                    "\(phone.registration)/v1/notifications/\(one.id)",
                    headers: app.masterHeaders
                )
                #expect(answer.json?["opens"]?.integer == wanted.opens, "\(answer.text)")
                #expect(answer.json?["received"]?.integer == wanted.received)
            }
            // The charts' counts by the minute agree: each report is in the one of its row.
            for (minutes, kind) in [(1, "minute"), (60, "hour")] {
                let figures = try await bench.stack.database.query(
                    """
                    select at, sum(received), sum(opened) from push_figures
                    where app = '\(app.id)' and minutes = \(minutes) and provider = ''
                        and push_id = '00000000-0000-0000-0000-000000000000'
                    group by 1 order by 1
                    """
                )
                let receipts = try await bench.stack.database.query(
                    """
                    select date_trunc('\(kind)', at), count(*) filter (where kind = 2),
                        count(*) filter (where kind = 1)
                    from push_receipts where app = '\(app.id)' group by 1 order by 1
                    """
                )
                #expect(figures == receipts && !figures.isEmpty)
            }
            let theirs = try await http(
                "GET",
                "\(phone.registration)/v1/notifications/\(push.id)",
                headers: stranger.app.masterHeaders
            )
            #expect(theirs.status == 404)
        }

        private static func send(
            _ reports: [JSONValue],
            _ type: String,
            by bench: IngestBench
        ) async throws {
            for start in stride(from: 0, to: reports.count, by: 500) {
                try await bench.send(
                    Array(reports[start..<min(start + 500, reports.count)]),
                    type: type
                )
            }
        }

        /// A phone of an app of its own, and its pushes.
        private struct Phone {
            let bench: IngestBench
            let registration: String
            private let token = makeAPNsToken()

            init() async throws {
                bench = try await IngestBench(declares: nil)
                registration = try #require(try RunningIngest.current.registration).url
                let answer = try await http(
                    "POST",
                    "\(registration)/1.1/installations",
                    headers: bench.app.clientHeaders,
                    body: [
                        "deviceType": "ios", "deviceToken": .string(token),
                        "apnsTopic": .string(bench.app.bundleID),
                        "apnsEnvironment": "production", "channels": ["news"],
                    ]
                )
                guard answer.status == 201 else { throw TestFailure(answer.text) }
            }

            struct Push: Sendable {
                let id: String
                let event: String
                let received: SimulatorControl.Received
            }

            /// Sends one, and waits until it has ended.
            func push() async throws -> Push {
                let before = try await bench.stack.simulator.received(for: token).count
                let event = TestEnvironment.unique("event-")
                try await bench.stack.send([
                    "id": .string(event), "source": "e2e", "app": .string(bench.app.id),
                    "channels": ["news"], "data": ["alert": "Hello"],
                ])
                let all = try await bench.stack.simulator.waitFor(before + 1, for: token)
                let shown = try await bench.stack.finishedPush(event: event)
                let id = try #require(shown["id"]?.string ?? shown["pushId"]?.string)
                return Push(id: id, event: event, received: all[before])
            }
        }
    }
}
