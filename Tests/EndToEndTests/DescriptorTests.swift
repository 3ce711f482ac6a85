import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Any client can open connections. A client that opens more than a service has descriptors
    /// must not affect its operators or the clients that are connected already.
    @Suite("Connections that exhaust the descriptors", .serialized, .timeLimit(.minutes(1)))
    struct DescriptorTests {
        static let services = [
            "carillon-registration", "carillon-config-watcher", "carillon-secure-payload",
            "carillon-ingest", "carillon-connection", "carillon-dispatcher", "carillon-simulator",
        ]

        /// One process with a limited number of descriptors, which answers liveness checks without
        /// Postgres or Kafka.
        private struct Service {
            let process: ChildProcess
            /// The port that is attacked.
            let port: Int
            let operationsPort: Int

            init(_ executable: String, descriptors: Int) async throws {
                let key = Data(repeating: 7, count: 32).base64EncodedString()
                var environment = [
                    "HTTP_HOST": "127.0.0.1", "HTTP_PORT": "0", "LOG_FORMAT": "json",
                    "OPERATIONS_PORT": "0", "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
                    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "CARILLON_MASTER_KEYS": "k:\(key)",
                ]
                if executable == "carillon-simulator" {
                    let folder = "/tmp/" + TestEnvironment.unique("carillon-fd-")
                    environment = [
                        "HTTP_HOST": "127.0.0.1", "HTTP_PORT": "0", "LOG_FORMAT": "json",
                        "OPERATIONS_PORT": "0", "HTTP_TLS_PORT": "0", "SIMULATOR_SANDBOX_PORT": "0",
                        "SIMULATOR_KAFKA": "false", "SIMULATOR_CREDENTIALS_DIR": folder,
                    ]
                }
                process = try await ChildProcess.start(
                    "/usr/bin/prlimit",
                    ["--nofile=\(descriptors):\(descriptors)", Stack.executable(executable)],
                    environment: environment
                )
                operationsPort = try await process.port(surface: "operations")
                // A dispatcher listens only for its operators.
                port =
                    executable == "carillon-dispatcher"
                    ? operationsPort : try await process.port()
            }

            /// Sets the limit to the descriptors that are open now.
            func takeDescriptors() async throws {
                let folder = "/proc/\(process.processID)/fd"
                let open = try FileManager.default.contentsOfDirectory(atPath: folder)
                let numbers = Set(open.compactMap { Int($0) })
                let next = (0...open.count).first { !numbers.contains($0) } ?? open.count
                try await limitDescriptors(to: next)
            }

            /// Sets the soft limit, which any process may raise again.
            func limitDescriptors(to count: Int) async throws {
                let answer = try await run(
                    "/usr/bin/prlimit",
                    ["--pid", "\(process.processID)", "--nofile=\(count):"]
                )
                _ = try answer.successful("prlimit")
            }
        }

        /// A client that stays connected.
        private struct Client {
            private let socket: LoopbackSocket

            init(port: Int) throws { socket = try LoopbackSocket(port: UInt16(port)) }

            /// Sends a request that every listener answers, possibly by 404.
            func ask() async throws {
                let socket = socket
                let answer = try await onThread {
                    try socket.send(Array("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n".utf8))
                    return try socket.receive()
                }
                #expect(String(decoding: answer, as: UTF8.self).hasPrefix("HTTP/1.1 "))
            }

            func close() { socket.close() }
        }

        private func attackers(_ count: Int, on port: Int) -> [LoopbackSocket] {
            var limit = rlimit()
            _ = unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            limit.rlim_cur = limit.rlim_max
            _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            // A service that closes the last ones at once may refuse some.
            return (0..<count).compactMap { _ in try? LoopbackSocket(port: UInt16(port)) }
        }

        @Test(
            "With more connections than descriptors, operators and clients are served, and SIGTERM ends",
            arguments: services
        )
        func moreConnectionsThanDescriptors(executable: String) async throws {
            let service = try await Service(executable, descriptors: 256)
            let limits = service.process.events.filter {
                $0["message"]?.string?.hasPrefix("connection limit") == true
            }
            #expect(!limits.isEmpty)
            #expect(limits.allSatisfy { ($0["count"]?.integer).map { $0 <= 128 } == true })
            let client = try Client(port: service.port)
            defer { client.close() }
            try await client.ask()

            let attackers = attackers(600, on: service.port)
            defer { for attacker in attackers { attacker.close() } }
            try await client.ask()
            // This is immediate, except if the operators' own port is attacked: there a silent
            // connection must be a second old before it makes room.
            _ = try await eventually("the operators are answered") {
                let url = "http://127.0.0.1:\(service.operationsPort)/livez"
                return try? await http("GET", url).status == 200 ? true : nil
            }
            _ = try await service.process.event(
                "connections refused: too many are open"
            )
            #expect(await service.process.stop() == .status(0), "\(service.process.finalBytes)")
        }

        @Test(
            "A listener without descriptors pauses, and continues once there are some",
            arguments: services
        )
        func noDescriptorLeft(executable: String) async throws {
            let service = try await Service(executable, descriptors: 1024)
            let (client, operator_) = (
                try Client(port: service.port), try Client(port: service.operationsPort)
            )
            defer { client.close() }
            try await client.ask()
            try await operator_.ask()
            try await service.takeDescriptors()

            let attackers = attackers(200, on: service.port)
            _ = try await service.process.event("accepting paused")
            for _ in 0..<20 {
                try await client.ask()
                try await operator_.ask()
            }
            for attacker in attackers { attacker.close() }
            operator_.close()
            try await service.limitDescriptors(to: 1024)
            let url = "http://127.0.0.1:\(service.operationsPort)"
            // Closed connections of the attackers are before it in the backlog, and occupy slots
            // for a moment.
            let metrics = try await eventually("the operators are answered again") {
                try? await http("GET", url + "/metrics").text
            }
            let pauses = metrics.split(separator: "\n")
                .first { $0.hasPrefix("http_server_accept_pauses_total ") }
            #expect(pauses.map { !$0.hasSuffix(" 0") } == true)
            #expect(await service.process.stop() == .status(0), "\(service.process.finalBytes)")
        }
    }
}
