import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Cancellation of work whose client has left", .serialized, .timeLimit(.minutes(3)))
    struct AbandonedTests {
        private let find = "/1.1/installations?where="

        private func request(
            _ method: String,
            _ target: String,
            _ app: Stack.App,
            _ body: JSONValue? = nil
        ) -> [UInt8] {
            var head = "\(method) \(target) HTTP/1.1\r\nHost: a\r\n"
            for (name, value) in app.masterHeaders { head += "\(name): \(value)\r\n" }
            let bytes = body?.bytes ?? []
            if body != nil {
                head += "Content-Type: application/json\r\nContent-Length: \(bytes.count)\r\n"
            }
            return Array("\(head)\r\n".utf8) + bytes
        }

        private func waiting(_ stack: Stack) async throws -> Int {
            let rows = try await stack.database.query(
                """
                select count(*) from pg_stat_activity where datname = current_database()
                    and wait_event_type = 'Lock' and query like '%FROM installations%'
                """
            )
            return rows.first.flatMap { Int($0) } ?? 0
        }

        /// Runs `body` while the table of installations is locked.
        private func withoutInstallations(
            _ stack: Stack,
            _ body: () async throws -> Void
        ) async throws {
            let database = stack.database
            let lock = Task {
                _ = try? await database.query(
                    """
                    begin; lock table installations in access exclusive mode; select pg_sleep(60)
                    """
                )
            }
            _ = try await eventually("the lock is held") {
                let held = try await database.query(
                    "select 1 from pg_stat_activity where wait_event = 'PgSleep'"
                        + " and datname = current_database()"
                )
                return held.isEmpty ? nil : true
            }
            try await body()
            _ = try await database.query(
                "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'"
                    + " and datname = current_database()"
            )
            await lock.value
        }

        private func phone() -> JSONValue {
            ["deviceType": "ios", "deviceToken": .string(makeAPNsToken())]
        }

        @Test("A find ends at Postgres soon after its client has left, and a batch stops")
        func leavers() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                let port = try #require(URLComponents(string: service.url)?.port)
                let slow = "\(find)%7B%22city%22%3A%22Oslo%22%7D"
                let batch: JSONValue = [
                    "requests": [
                        ["method": "GET", "path": .string(slow)],
                        ["method": "POST", "path": "/1.1/installations", "body": phone()],
                    ]
                ]
                for call in [
                    request("GET", slow, app), request("POST", "/1.1/batch", app, batch),
                ] {
                    try await withoutInstallations(stack) {
                        let socket = try LoopbackSocket(port: UInt16(port))
                        try socket.send(call)
                        _ = try await eventually("the question waits for the lock") {
                            try await waiting(stack) == 1 ? true : nil
                        }
                        socket.close()
                        // On its own it would end after 5 s, by its time limit.
                        _ = try await eventually("nobody asks it any more", within: .seconds(3)) {
                            try await waiting(stack) == 0 ? true : nil
                        }
                    }
                }
                let saved = try await http(
                    "POST",
                    service.url + "/1.1/installations",
                    headers: app.masterHeaders,
                    body: phone()
                )
                #expect(saved.status == 201)
                #expect(await service.process.stop() == .status(0))
                let count = try await stack.database.query("select count(*) from installations")
                #expect(count == ["1"])
            }
        }

        @Test("A client that leaves does not end another client's statement")
        func others() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, environment, apns_topic, fields, token_updated_at, created_at)
                    select '\(app.id)', lpad(to_hex(n), 24, '0'), 'ios', 'apns', token,
                        sha256(convert_to(token, 'UTF8')), 'production', '\(app.bundleID)',
                        jsonb_build_object('city', repeat('a', 200)), now(), now()
                    from (select n, encode(sha256(convert_to('\(app.id)' || n, 'UTF8')), 'hex')
                        as token from generate_series(1, 20000) n) phones
                    """
                )
                let service = try await stack.start("carillon-registration")
                let port = try #require(URLComponents(string: service.url)?.port)
                // It takes some tens of milliseconds, as it is evaluated for each row.
                let slow =
                    "\(find)%7B%22city%22%3A%7B%22%24regex%22%3A%22%5E%28a%7Caa%29%2Ab%24%22%7D%7D"
                let leaving = Task {
                    while !Task.isCancelled {
                        let socket = try LoopbackSocket(port: UInt16(port))
                        try socket.send(request("GET", slow, app))
                        try await Task.sleep(for: .milliseconds(Int.random(in: 5...60)))
                        socket.reset()
                    }
                }
                defer { leaving.cancel() }
                for _ in 0..<40 {
                    let found = try await http(
                        "GET",
                        service.url + slow,
                        headers: app.masterHeaders
                    )
                    #expect(found.status == 200, "\(found.text)")
                    let saved = try await http(
                        "POST",
                        service.url + "/1.1/installations",
                        headers: app.masterHeaders,
                        body: phone()
                    )
                    #expect(saved.status == 201, "\(saved.text)")
                }
                let ended = try await http("GET", service.url + "/metrics").text
                    .split(separator: "\n")
                    .first { $0.hasPrefix("postgres_statements_total") && $0.contains("cancelled") }
                let count = ended?.split(separator: " ").last.flatMap { Double($0) } ?? 0
                #expect(count > 0, "nothing was cancelled: \(ended ?? "no such line")")
            }
        }
    }
}
