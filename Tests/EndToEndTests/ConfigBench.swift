import Foundation
import JSON
import Support
import Testing

/// A stack with the config watcher, a dispatcher, and an app with a config token.
struct ConfigBench: Sendable {
    let stack: Stack
    let watcher: Stack.Service
    let app: Stack.App
    let token: String

    static let ios = "1:8812:ios:a1b2c3"

    /// Runs the body with one; its services must end gracefully.
    static func run(
        _ extra: [String: String] = [:],
        withDispatcher: Bool = false,
        _ body: (ConfigBench) async throws -> Void
    ) async throws {
        try await Stack.with { stack in
            let watcher = try await startWatcher(on: stack, extra)
            let app = try await stack.makeApp()
            let bench = ConfigBench(
                stack: stack,
                watcher: watcher,
                app: app,
                token: try await stack.configToken(of: app.id, named: "ci")
            )
            let dispatcher = withDispatcher ? try await stack.start("carillon-dispatcher") : nil
            try await body(bench)
            for service in [watcher, dispatcher].compactMap({ $0 }) {
                #expect(await service.process.stop() == .status(0), "\(service.process.finalBytes)")
            }
        }
    }

    /// The environment of the programs that run vendors' clients.
    var clientEnvironment: [String: String] {
        [
            "CONFIG_URL": watcher.url, "PROJECT": app.id, "TOKEN": token, "API_KEY": app.appKey,
            "PYTHONDONTWRITEBYTECODE": "1",
        ]
    }

    static func startWatcher(
        on stack: Stack,
        _ extra: [String: String] = [:]
    ) async throws -> Stack.Service {
        try await stack.start(
            "carillon-config-watcher",
            ["KAFKA_GROUP_ID": stack.topic("config-watcher")].merging(extra) { $1 }
        )
    }

    var project: String { "\(watcher.url)/v1/projects/\(app.id)" }
    var bearer: [String: String] { ["Authorization": "Bearer \(token)"] }

    /// Makes a template of one parameter, `wakeUp`.
    static func template(_ value: String) -> JSONValue {
        ["parameters": ["bell": ["defaultValue": ["value": .string(value)]]]]
    }

    /// Publishes over the current version, or over a given one.
    ///
    /// - Returns: Its number.
    @discardableResult
    func publish(_ template: JSONValue, over etag: String = "*") async throws -> String {
        let answer = try await http(
            "PUT",
            "\(project)/remoteConfig",
            headers: bearer.merging(["If-Match": etag]) { $1 },
            body: template
        )
        guard answer.status == 200,
            let version = answer.json?["version"]?["versionNumber"]?.string
        else { throw TestFailure("not published: \(answer.status) \(answer.text)") }
        return version
    }

    /// Fetches as the Android SDK does.
    func fetch(_ instance: String = "one", _ fields: JSONObject = [:]) async throws -> HTTPAnswer {
        var body: JSONObject = ["appInstanceId": .string(instance), "appId": .string(Self.ios)]
        for (name, value) in fields { body[name] = value }
        return try await http(
            "POST",
            "\(project)/namespaces/firebase:fetch",
            headers: ["X-Goog-Api-Key": app.appKey],
            body: .object(body)
        )
    }

    /// Returns the announcements, once there are this many records.
    func announced(_ count: Int) async throws -> [JSONValue] {
        try await eventually("\(count) records of PUSH_RC") {
            let all = try await stack.kafka.records(on: stack.topic("PUSH_RC")).compactMap(\.json)
            return all.count >= count ? all : nil
        }
    }
}

/// Gives all tests of a suite one stack with the config watcher. Each test makes an app of its own.
struct RunningConfig: SuiteTrait, TestScoping {
    @TaskLocal static var running: (stack: Stack, watcher: Stack.Service)?

    /// Makes an app of its own on the suite's stack, with a config token.
    static func makeBench() async throws -> ConfigBench {
        guard let running else { throw TestFailure("this suite runs no config watcher") }
        let app = try await running.stack.makeApp()
        return ConfigBench(
            stack: running.stack,
            watcher: running.watcher,
            app: app,
            token: try await running.stack.configToken(of: app.id, named: "ci")
        )
    }

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing body: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await Stack.with { stack in
            let watcher = try await ConfigBench.startWatcher(on: stack)
            try await Self.$running.withValue((stack, watcher), operation: body)
            #expect(await watcher.process.stop() == .status(0), "\(watcher.process.finalBytes)")
        }
    }
}

extension Trait where Self == RunningConfig {
    static var runningConfig: Self { Self() }
}

extension Stack {
    /// Makes a new config token for an app's remote config.
    func configToken(
        of app: String,
        named name: String,
        isReadOnly: Bool = false
    ) async throws -> String {
        let arguments = ["config", "token", "create", app, "--name", name, "--json"]
        let output = try await Support.run(
            Self.executable("carillon"),
            arguments + (isReadOnly ? ["--read-only"] : []),
            environment: environment
        )
        .successful("carillon config token create")
        guard let token = try JSONValue.parse(output)["token"]?.string else {
            throw TestFailure("no token in \(output)")
        }
        return token
    }
}
