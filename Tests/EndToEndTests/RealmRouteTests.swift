import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The routes and the WebSocket, byte by byte: no answer harms a client.
    @Suite(
        "Realm's routes never refuse what would make a client delete its data",
        .runningIngest,
        .serialized,
        needsBroker,
        .timeLimit(.minutes(5))
    )
    struct RealmRouteTests {
        private static let base = "/api/client/v2.0"

        private func signIn(_ bench: IngestBench, app: String? = nil) async throws -> JSONValue {
            let answer = try await http(
                "POST",
                bench.service.url
                    + "\(Self.base)/app/\(app ?? bench.app.id)/auth/providers/anon-user/login",
                headers: ["Content-Type": "application/json"],
                bytes: Array(#"{"provider":"anon-user"}"#.utf8)
            )
            #expect(answer.status == 200, "\(answer.text)")
            return answer.json ?? .null
        }

        @Test(
            "A sign-in gives tokens that open the profile and are renewed; the app's id has an alias"
        )
        func tokens() async throws {
            let bench = try await IngestBench.realm()
            let atlas = TestEnvironment.unique("tracker-")
            try await bench.stack.carillon("app", "link", bench.app.id, "--atlas-app", atlas)
            let user = try await signIn(bench, app: atlas)
            let access = try #require(user["access_token"]?.string)
            let refresh = try #require(user["refresh_token"]?.string)
            #expect(user["user_id"]?.string?.count == 24)
            for token in [access, refresh] {
                let claims = try UnverifiedToken(token).claims
                #expect(claims["exp"]?.integer != nil && claims["iat"]?.integer != nil)
            }
            let location = try await http(
                "GET",
                bench.service.url + "\(Self.base)/app/\(atlas)/location"
            )
            #expect(location.json?["hostname"]?.string == bench.service.url)
            #expect(
                location.json?["ws_hostname"]?.string
                    == bench.service.url.replacing("http://", with: "ws://")
            )
            let profile = try await http(
                "GET",
                bench.service.url + "\(Self.base)/auth/profile",
                headers: ["Authorization": "Bearer \(access)"]
            )
            #expect(profile.json?["user_id"] == user["user_id"])
            #expect(profile.json?["identities"]?.array?.count == 1)
            let renewed = try await http(
                "POST",
                bench.service.url + "\(Self.base)/auth/session",
                headers: ["Authorization": "Bearer \(refresh)"]
            )
            #expect(renewed.status == 201 && renewed.json?["access_token"]?.string != nil)
            for path in ["session", "delete"] {
                let gone = try await http(
                    "DELETE",
                    bench.service.url + "\(Self.base)/auth/\(path)",
                    headers: ["Authorization": "Bearer \(refresh)"]
                )
                #expect(gone.status == 204)
            }
        }

        @Test("Wrong tokens, other apps' tokens and apps that are off get 503, never 401 or 403")
        func wrongTokens() async throws {
            let bench = try await IngestBench.realm()
            let other = try await IngestBench.realm()
            let off = try await IngestBench()
            let (mine, theirs) = (try await signIn(bench), try await signIn(other))
            let access = try #require(mine["access_token"]?.string)
            let refresh = try #require(mine["refresh_token"]?.string)
            let forged = access.dropLast(4) + "AAAA"
            for token in [String(forged), access, "a.b.c", "", "x"] {
                let answer = try await http(
                    "POST",
                    bench.service.url + "\(Self.base)/auth/session",
                    headers: ["Authorization": "Bearer \(token)"]
                )
                #expect(answer.status == 503, "\(answer.text)")
                #expect(answer.json?["error_code"]?.string == "ServiceUnavailable")
            }
            let wrong = [
                (bench, String(forged)), (bench, refresh), (bench, ""),
                (bench, theirs["access_token"]?.string ?? ""), (off, access),
            ]
            for (app, token) in wrong {
                let status = try await handshake(app, token)
                #expect(status == 503)
            }
            #expect(try await handshake(bench, access) == 101)
            #expect(
                try await handshake(bench, access, protocols: "com.mongodb.realm-sync#1") == 400
            )
            let unknown = try await http("GET", bench.service.url + "\(Self.base)/app/x/functions")
            #expect(unknown.status == 404 && unknown.json?["error_code"]?.string == "NotFound")
            let login = try await http(
                "POST",
                bench.service.url
                    + "\(Self.base)/app/\(bench.app.id)/auth/providers/api-key/login",
                headers: [:],
                bytes: Array(#"{"key":"wrong"}"#.utf8)
            )
            #expect(login.status == 401)
        }

        @Test("Old tokens of Atlas are taken until the app's day, for its own sockets, and audited")
        func rescue() async throws {
            let bench = try await IngestBench.realm()
            let other = try await IngestBench.realm()
            func part(_ text: String) -> String { Base64.encodeURL(Array(text.utf8)) }
            let old =
                part(#"{"alg":"HS256","typ":"JWT"}"#) + "."
                + part(#"{"exp":1,"iat":1,"sub":"5f00000000000000000000aa"}"#) + "."
                + part("signature of Atlas")
            func renew() async throws -> HTTPAnswer {
                try await http(
                    "POST",
                    bench.service.url + "\(Self.base)/auth/session",
                    headers: ["Authorization": "Bearer \(old)"]
                )
            }
            #expect(try await renew().status == 503)
            try await bench.stack.carillon(
                "app",
                "set",
                bench.app.id,
                "realm-rescue-until=9999-01-01"
            )
            let token = try await eventually("the token is taken", within: .seconds(20)) {
                try await renew().json?["access_token"]?.string
            }
            #expect(try await handshake(bench, token) == 101)
            #expect(try await handshake(other, token) == 503)
            let audit = try await bench.stack.carillon("audit", bench.app.id, "--json")
            #expect(audit.contains("realm-rescue") && audit.contains("5f00000000000000000000aa"))
            try await bench.stack.carillon("app", "set", bench.app.id, "realm-rescue-until=off")
            _ = try await eventually("the rescue has ended", within: .seconds(20)) {
                try await handshake(bench, token) == 503 ? true : nil
            }
        }

        @Test(
            "Whatever a client sends, its socket ends by TCP alone, and memory is bounded",
            .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
        )
        func hostile() async throws {
            try await Stack.with { stack in
                let service = try await IngestBench.start(on: stack)
                let bench = IngestBench(stack, service, try await stack.makeApp())
                try await bench.stack.carillon("app", "set", bench.app.id, "realm-sync=on")
                let port = try #require(URLComponents(string: service.url)?.port)
                let answer = try await run(
                    try #require(TestEnvironment.python),
                    [scriptFile("realm_hostile.py"), String(port), bench.app.id]
                )
                #expect(answer.exit == .status(0), "\(answer.errors.suffix(2000))")
                let status = try String(
                    contentsOfFile: "/proc/\(service.process.processID)/status",
                    encoding: .utf8
                )
                let peak = status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
                let kilobytes = peak?.split(separator: " ").compactMap { Int($0) }.first ?? 0
                print("realm, hostile: \(answer.output), at most \(kilobytes) kB")
                // One upload of 64 MiB is decoded at once, with 4 bytes for each, and others wait.
                #expect(kilobytes < 480 << 10)
                _ = try await eventually("the sockets of ended clients are closed") {
                    try await bench.count("ingest_realm_open_sockets") == 0 ? true : nil
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        /// The status of the answer to a handshake.
        private func handshake(
            _ bench: IngestBench,
            _ token: String,
            protocols: String = "com.mongodb.realm-query-sync#14, com.mongodb.realm-query-sync#13"
        ) async throws -> Int {
            let path = "\(Self.base)/app/\(bench.app.id)/realm-sync?baas_at=\(token)"
            let answer = try await run(
                "/usr/bin/curl",
                [
                    "-s", "-o", "/dev/null", "-w", "%{http_code}",
                    "--http1.1", "--max-time", "2", "-H", "Connection: Upgrade",
                    "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13",
                    "-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                    "-H", "Sec-WebSocket-Protocol: \(protocols)", bench.service.url + path,
                ]
            )
            return Int(answer.output) ?? 0
        }
    }
}
