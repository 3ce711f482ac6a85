import Cryptography
import Foundation
import JSON
import Support
import Testing

/// The built executables as an operator runs them, a few suites at once.
@Suite(
    "End to end",
    .place,
    .enabled(
        if: TestEnvironment.executables != nil && TestEnvironment.databaseURL != nil,
        "DATABASE_URL or CARILLON_BIN is not set: deploy/test sets both"
    )
)
enum EndToEndTests {}

/// Gives all tests of a suite one stack with registration and one dispatcher. Each test makes an
/// app of its own, so that they share nothing but the executables.
struct RunningStack: SuiteTrait, TestScoping {
    /// Whether registration also listens for TLS, which some clients require.
    var tls = false

    struct Running: Sendable {
        let stack: Stack
        let registration: Stack.Service
        let dispatcher: Stack.Service
        /// Registration's TLS address, and the file of the certificate to verify it.
        var secureAddress: String?
        var certificateAuthority: String?
    }

    @TaskLocal static var running: Running?

    /// The suite's stack.
    static var current: Running {
        get throws {
            guard let running else { throw TestFailure("this suite runs no stack") }
            return running
        }
    }

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing body: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await Stack.with { stack in
            var listener: [String: String] = [:]
            var authorityFile: String?
            if tls {
                let authority = try CertificateAuthority.make(commonName: "Test CA")
                let leaf = try authority.issue(hosts: ["localhost", "127.0.0.1"])
                authorityFile = try stack.write(authority.certificatePEM, to: "door-ca.pem")
                listener = [
                    "HTTP_TLS_PORT": "0",
                    "HTTP_TLS_CERTIFICATE_FILE":
                        try stack.write(leaf.certificatePEM, to: "door.pem"),
                    "HTTP_TLS_PRIVATE_KEY_FILE":
                        try stack.write(leaf.privateKeyPEM, to: "door.key"),
                ]
            }
            let registration = try await stack.start("carillon-registration", listener)
            let dispatcher = try await stack.start("carillon-dispatcher")
            var running = Running(
                stack: stack,
                registration: registration,
                dispatcher: dispatcher,
                certificateAuthority: authorityFile
            )
            if tls {
                let port = try await registration.process.port(scheme: "https")
                running.secureAddress = "https://127.0.0.1:\(port)"
            }
            try await Self.$running.withValue(running, operation: body)
            #expect(
                await dispatcher.process.stop() == .status(0),
                "\(dispatcher.process.finalBytes)"
            )
            #expect(
                await registration.process.stop() == .status(0),
                "\(registration.process.finalBytes)"
            )
        }
    }
}

extension Trait where Self == RunningStack {
    static var runningStack: Self { Self() }
    static var runningStackWithTLS: Self { Self(tls: true) }
}

/// Common steps of tests with a running stack and an app of their own.
struct Bench {
    let stack: Stack
    let registration: String
    let app: Stack.App

    init() async throws {
        let running = try RunningStack.current
        stack = running.stack
        registration = running.registration.url
        app = try await stack.makeApp()
    }

    var simulator: SimulatorControl { stack.simulator }

    /// Registers a device over HTTP, as its app would; returns its object id.
    func register(_ fields: JSONValue) async throws -> String {
        let answer = try await http(
            "POST",
            "\(registration)/1.1/installations",
            headers: app.clientHeaders,
            body: fields
        )
        guard answer.status == 201, let id = answer.json?["objectId"]?.string else {
            throw TestFailure("POST /1.1/installations: \(answer.status) \(answer.text)")
        }
        return id
    }

    func registerPhone(
        token: String,
        channels: [String],
        environment: String = "production"
    ) async throws -> String {
        try await register([
            "deviceType": "ios", "deviceToken": .string(token),
            "apnsTopic": .string(app.bundleID), "apnsEnvironment": .string(environment),
            "channels": .array(channels.map { .string($0) }),
        ])
    }

    /// Returns the installation as the owner's backend reads it.
    func installation(_ id: String) async throws -> JSONValue {
        let answer = try await http(
            "GET",
            "\(registration)/1.1/installations/\(id)",
            headers: app.masterHeaders
        )
        guard answer.status == 200, let json = answer.json else {
            throw TestFailure("GET /1.1/installations/…: \(answer.status) \(answer.text)")
        }
        return json
    }

    /// Makes a push request to channels of the app, with an id of its own.
    func event(_ channels: [String], alert: String = "Ding dong") -> (id: String, JSONValue) {
        let id = TestEnvironment.unique("event-")
        let request: JSONValue = [
            "id": .string(id), "source": "e2e", "app": .string(app.id),
            "channels": .array(channels.map { .string($0) }), "data": ["alert": .string(alert)],
        ]
        return (id, request)
    }
}

/// Makes a device token in APNs' form.
func makeAPNsToken() -> String {
    (0..<4).map { _ in
        let text = String(UInt64.random(in: .min ... .max), radix: 16)
        return String(repeating: "0", count: 16 - text.utf8.count) + text
    }.joined()
}
