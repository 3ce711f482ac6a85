import Cryptography
import EventLoop
import Foundation
package import JSON
import PushCore
import PushStorage
import Storage

/// Carillon as an operator runs it: the built executables, the simulator, a database and topics of
/// its own. Everything is on this machine, on ports of its own, and is removed afterwards.
///
/// On the broker of `KAFKA_BOOTSTRAP_SERVERS` the topics have a prefix; without one the simulator
/// hosts librdkafka's mock cluster. `extra` may name another broker, and another prefix.
package final class Stack: Sendable {
    package let database: TestDatabase
    package let simulatorProcess: ChildProcess
    package let simulator: SimulatorControl
    package let kafka: KafkaClient
    /// The topics' prefix.
    package let prefix: String
    /// The environment of every service and of the command.
    package let environment: [String: String]
    /// The simulator's TLS listener, for channel URIs.
    package let origin: String
    package let folder: String

    /// Runs the body with a complete stack, with registration and one dispatcher if requested. Its
    /// database is on `postgres`, if the test has a server of its own.
    package static func with<Value: Sendable>(
        _ extra: [String: String] = [:],
        postgres: PrivatePostgres? = nil,
        isolation: isolated (any Actor)? = #isolation,
        _ body: (Stack) async throws -> Value
    ) async throws -> Value {
        let folder = "/tmp/" + TestEnvironment.unique("carillon-e2e-")
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let database =
            if let postgres {
                try await TestDatabase.make(on: postgres.url)
            } else {
                try await TestDatabase.makeMigrated()
            }
        let prefix = extra["KAFKA_TOPIC_PREFIX"] ?? TestEnvironment.unique("e2e-") + "."
        do {
            let (process, ports) = try await startSimulator(in: folder, prefix: prefix)
            do {
                let stack = try await Stack(
                    database: database,
                    simulatorProcess: process,
                    ports: ports,
                    prefix: prefix,
                    folder: folder,
                    extra: extra
                )
                _ = try await stack.carillon("migrate")
                let value = try await body(stack)
                await process.stop()
                try await database.drop()
                return value
            } catch {
                await process.stop()
                throw error
            }
        } catch {
            try? await database.drop()
            throw error
        }
    }

    private struct Ports {
        let control: Int
        let tls: Int
        let sandbox: Int
    }

    private static func startSimulator(
        in folder: String,
        prefix: String
    ) async throws -> (ChildProcess, Ports) {
        let tls = try freePort()
        let sandbox = try freePort()
        try await FirstAccount.shared.copy(to: "\(folder)/credentials")
        let process = try await ChildProcess.start(
            executable("carillon-simulator"),
            environment: [
                "HTTP_HOST": "127.0.0.1", "HTTP_PORT": "0", "HTTP_TLS_PORT": String(tls),
                "SIMULATOR_SANDBOX_PORT": String(sandbox), "LOG_FORMAT": "json",
                "SIMULATOR_CREDENTIALS_DIR": "\(folder)/credentials",
                "SIMULATOR_CA_FILE": "\(folder)/credentials/ca.pem",
                "KAFKA_TOPIC_PREFIX": prefix, "KAFKA_PARTITIONS": "4",
                "SIMULATOR_KAFKA": TestEnvironment.kafkaBootstrapServers == nil ? "true" : "false",
            ]
        )
        do {
            let control = try await process.port()
            let address = "http://127.0.0.1:\(control)"
            try await waitUntilReady(process, address)
            await FirstAccount.shared.keep(from: "\(folder)/credentials")
            return (process, Ports(control: control, tls: tls, sandbox: sandbox))
        } catch {
            await process.stop()
            throw error
        }
    }

    private init(
        database: TestDatabase,
        simulatorProcess: ChildProcess,
        ports: Ports,
        prefix: String,
        folder: String,
        extra: [String: String]
    ) async throws {
        var broker = extra["KAFKA_BOOTSTRAP_SERVERS"] ?? TestEnvironment.kafkaBootstrapServers
        if broker == nil {
            broker = try await simulatorProcess.event("mock broker")["bootstrap"]?.string
        }
        guard let broker else { throw TestFailure("the simulator logged no mock broker") }
        self.database = database
        self.simulatorProcess = simulatorProcess
        self.folder = folder
        simulator = SimulatorControl(url: "http://127.0.0.1:\(ports.control)")
        kafka = KafkaClient(bootstrapServers: broker)
        self.prefix = prefix
        origin = "https://127.0.0.1:\(ports.tls)"
        let key = (0..<32).map { _ in UInt8.random(in: 0...255) }
        environment = [
            "DATABASE_URL": database.url, "KAFKA_BOOTSTRAP_SERVERS": broker,
            "KAFKA_TOPIC_PREFIX": prefix, "KAFKA_PARTITIONS": "4",
            "KAFKA_GROUP_ID": "\(prefix)dispatcher", "LOG_FORMAT": "json",
            "HTTP_HOST": "127.0.0.1", "HTTP_PORT": "0",
            "CARILLON_MASTER_KEYS": "e2e:\(Data(key).base64EncodedString())",
            "APNS_PRODUCTION_URL": origin,
            "APNS_SANDBOX_URL": "https://127.0.0.1:\(ports.sandbox)",
            "FCM_URL": origin, "FCM_IID_URL": origin, "FCM_TOKEN_HOSTS": "127.0.0.1:\(ports.tls)",
            "WNS_LIVE_TOKEN_URL": origin, "WNS_ENTRA_TOKEN_URL": origin,
            "WNS_CHANNEL_HOSTS": "127.0.0.1:\(ports.tls)",
            "MPNS_CHANNEL_HOSTS":
                "127.0.0.1:\(ports.tls)/mpns/,127.0.0.1:\(ports.control)/mpns/",
            "PROVIDER_CA_FILE": "\(folder)/credentials/ca.pem",
        ].merging(extra) { _, theirs in theirs }
    }

    /// Returns the file of a built executable.
    package static func executable(_ name: String) -> String {
        "\(TestEnvironment.executables ?? ".build/release")/\(name)"
    }

    private static func waitUntilReady(_ process: ChildProcess, _ url: String) async throws {
        _ = try await eventually("\(process.name) is ready: \(process.finalBytes)") {
            try await http("GET", "\(url)/readyz").status == 200 ? true : nil
        }
    }

    // MARK: - Services and the command

    /// A running service: its process and its plain HTTP address.
    package struct Service: Sendable {
        package let process: ChildProcess
        package let url: String
    }

    /// Starts a service and waits until it reports that it is ready.
    package func start(
        _ executable: String,
        _ extra: [String: String] = [:]
    ) async throws -> Service {
        let process = try await ChildProcess.start(
            Self.executable(executable),
            environment: environment.merging(extra) { _, theirs in theirs }
        )
        do {
            let url = "http://127.0.0.1:\(try await process.port())"
            try await Self.waitUntilReady(process, url)
            return Service(process: process, url: url)
        } catch {
            await process.stop()
            throw error
        }
    }

    /// Runs the operator's command, and fails with its output if it fails.
    @discardableResult
    package func carillon(_ arguments: String...) async throws -> String {
        try await run(Self.executable("carillon"), arguments, environment: environment)
            .successful("carillon \(arguments.prefix(3).joined(separator: " "))")
    }

    /// Writes a file that is removed with the stack, and returns its path.
    package func write(_ text: String, to name: String) throws -> String {
        let path = "\(folder)/\(name)"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }

    // MARK: - Events and their outcomes

    package func topic(_ name: String) -> String { prefix + name }

    /// Carillon's topics: on a mock cluster `carillon migrate` makes none.
    package static let topics =
        [
            "push.requests", "push.outcomes", "push.dead-letters", "config.published", "PUSH_RC",
            "dataset.changes",
        ] + BuiltInIngestType.allCases.map { "ingest.\($0.rawValue)" }

    /// Writes push requests as plain JSON records, in order, keyed by their ids.
    package func send(_ requests: JSONValue...) async throws {
        try await kafka.produce(
            requests.map { ($0["id"]?.string ?? "none", $0.text) },
            to: topic("push.requests")
        )
    }

    /// Returns the push of an event as `carillon push show --json` prints it, once no delivery is
    /// pending.
    package func finishedPush(event id: String) async throws -> JSONValue {
        let quoted = id.replacingOccurrences(of: "'", with: "''")
        return try await eventually("the push of event \(id) is finished") {
            let rows = try await database.query(
                """
                select 1 from pushes where event_id = '\(quoted)' and status = 'done' and pending = 0
                union all select 1 from event_pushes where event_id = '\(quoted)'
                """
            )
            // A program for each question would delay what is waited for.
            guard !rows.isEmpty else { return nil }
            let push = try JSONValue.parse(
                try await carillon("push", "show", "--event", id, "--json")
            )
            return push["pending"]?.integer == 0 && push["status"]?.string == "done" ? push : nil
        }
    }

    /// Cancels a push, as an operator does.
    package func cancel(push id: String) async throws {
        let result = try await withStores { stores, _ in try await stores.pushes.cancel(id) }
        guard result?.status == .cancelled else { throw TestFailure("no push was cancelled") }
    }

    /// Returns a key of the services that belongs to the database.
    package func derivedKey(for purpose: String) async throws -> [UInt8] {
        try await withStores { stores, _ in try await stores.derivedKey(for: purpose) }
    }

    /// Returns the outcomes of one event, once there are this many.
    package func outcomes(_ count: Int, event id: String) async throws -> [JSONValue] {
        try await eventually("\(count) outcomes of event \(id)") {
            let all = try await kafka.records(on: topic("push.outcomes"))
                .compactMap(\.json).filter { $0["eventId"]?.string == id }
            return all.count >= count ? all : nil
        }
    }

    /// Returns the dead letters of this key, once there are this many.
    package func deadLetters(_ count: Int, key: String) async throws -> [KafkaRead] {
        try await eventually("\(count) dead letters of key \(key)") {
            let all = try await kafka.records(on: topic("push.dead-letters"))
                .filter { $0.key == key }
            return all.count >= count ? all : nil
        }
    }
}

extension JSONValue {
    /// `targeted = delivered + failed + expired + suppressed + inDoubt + pending`.
    package var booksBalance: Bool {
        let names = ["delivered", "failed", "expired", "suppressed", "inDoubt", "pending"]
        guard let targeted = self["targeted"]?.integer else { return false }
        return names.reduce(0) { $0 + (self[$1]?.integer ?? 0) } == targeted
    }
}

/// The service account that the first simulator of this process made, for the others: an RSA key
/// takes half a second of a core.
private actor FirstAccount {
    static let shared = FirstAccount()

    private static let file = "service-account.json"
    private var account: Data?

    func keep(from folder: String) {
        account = account ?? FileManager.default.contents(atPath: "\(folder)/\(Self.file)")
    }

    func copy(to folder: String) throws {
        guard let account else { return }
        try FileManager.default.createDirectory(
            atPath: folder,
            withIntermediateDirectories: true
        )
        try account.write(to: URL(fileURLWithPath: "\(folder)/\(Self.file)"))
    }
}
