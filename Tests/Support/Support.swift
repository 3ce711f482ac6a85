import Foundation

/// Parts that only tests share: child processes, a stack of the built executables, records on
/// Kafka.
///
/// `deploy/test` sets the locations in the environment. A missing one is `nil`, and the suites that
/// need it are skipped with a reason.
package enum TestEnvironment {
    /// A libpq URI of a server on which databases and schemas may be made and dropped.
    package static let databaseURL = value("DATABASE_URL")
    /// A real broker.
    package static let kafkaBootstrapServers = value("KAFKA_BOOTSTRAP_SERVERS")
    /// The folder of the built executables.
    package static let executables = value("CARILLON_BIN")
    /// A Python with the packages of deploy/test-requirements.txt.
    package static let python = value("CARILLON_PYTHON")
    /// A Python with the packages of deploy/test-requirements-leancloud.txt.
    package static let pythonWithLeanCloud = value("CARILLON_PYTHON_LEANCLOUD")

    /// A Python with the packages of deploy/test-requirements-schemathesis.txt.
    package static let pythonWithSchemathesis = value("CARILLON_PYTHON_SCHEMATHESIS")
    /// A Python with the packages of deploy/test-requirements-firebase.txt.
    package static let pythonWithFirebase = value("CARILLON_PYTHON_FIREBASE")
    /// A Python with the packages of deploy/test-requirements-secure.txt.
    package static let pythonWithSecure = value("CARILLON_PYTHON_SECURE")
    /// A Python with the packages of deploy/test-requirements-ingest.txt.
    package static let pythonForIngest = value("CARILLON_PYTHON_INGEST")

    /// A folder whose `node_modules` has the packages of EndToEndTests/JavaScript/package.json.
    package static let nodeClients = value("NODE_CLIENTS")
    /// A folder with the jars of EndToEndTests/Java/clients.json, a folder for each client.
    package static let javaClients = value("JAVA_CLIENTS")
    /// A folder with the jars of the official Realm client and the sources of its driver.
    package static let realmClient = value("REALM_CLIENT")
    /// The folder of the built programs of EndToEndTests/Go.
    package static let goPrograms = value("CARILLON_GO_PROGRAMS")
    /// The browser's executable.
    package static let chromium = value("CARILLON_CHROMIUM")

    package static func value(_ name: String) -> String? {
        guard let value = ProcessInfo.processInfo.environment[name], !value.isEmpty else {
            return nil
        }
        return value
    }

    /// Makes a name for a database, schema, topic or app that is unique on this machine for all
    /// time.
    package static func unique(_ prefix: String) -> String {
        let random = UInt64.random(in: 0..<(1 << 40))
        return prefix + String(ProcessInfo.processInfo.processIdentifier, radix: 36)
            + String(random, radix: 36)
    }
}

/// A failed expectation without values to compare.
package struct TestFailure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}

/// Runs blocking work on a thread of its own, so that the pool that runs the tests never waits.
package func onThread<Value: Sendable>(
    _ body: @escaping @Sendable () throws -> Value
) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
}

/// Polls until there is a value, with pauses of 10 to 500 ms: for state without an event of its own,
/// such as a count behind HTTP. The suite's time limit is not enough as a bound: this one names the
/// missing state.
package func eventually<Value>(
    _ what: String,
    within limit: Duration = .seconds(30),
    isolation: isolated (any Actor)? = #isolation,
    _ ask: () async throws -> Value?
) async throws -> Value {
    let deadline = ContinuousClock.now + limit
    while true {
        let asked = ContinuousClock.now
        if let value = try await ask() { return value }
        let now = ContinuousClock.now
        guard now < deadline else { throw TestFailure("not within \(limit): \(what)") }
        // Asking may start a process, and what is waited for needs the processors too.
        let pause = min(max(.milliseconds(10), (now - asked) * 2), .milliseconds(500))
        try await Task.sleep(for: pause)
    }
}
