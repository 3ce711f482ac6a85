import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Postgres without disk space", .timeLimit(.minutes(1)))
    struct DiskTests {
        @Test("A push without disk space makes the service not ready, until a write succeeds")
        func notReady() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                func push() async throws -> Int {
                    try await http(
                        "POST",
                        service.url + "/1.1/push",
                        headers: app.masterHeaders,
                        body: ["channels": ["news"], "data": ["alert": "Ding"]]
                    ).status
                }
                #expect(try await push() == 200)
                _ = try await stack.database.query(
                    """
                    create function no_space() returns trigger language plpgsql as
                        $$ begin raise exception using errcode = '53100'; end $$
                    """
                )
                _ = try await stack.database.query(
                    "create trigger no_space before insert on outbox execute function no_space()"
                )
                #expect(try await push() == 503)
                let answer = try await http("GET", service.url + "/readyz")
                #expect(answer.status == 503)
                let parts = try JSONValue.parse(answer.body)["notReady"]?.array ?? []
                #expect(parts.contains { $0["part"]?.string?.hasPrefix("database-") == true })

                _ = try await stack.database.query("drop trigger no_space on outbox")
                _ = try await eventually("it is ready again") {
                    try await http("GET", service.url + "/readyz").status == 200 ? true : nil
                }
                #expect(try await push() == 200)
                #expect(await service.process.stop() == .status(0))
            }
        }
    }
}
