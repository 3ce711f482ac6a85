import Foundation

/// What only tests share: child processes, a stack of the built executables, records on Kafka.
///
/// `deploy/test` says where things are, by the environment. What is not there is `nil`, and the
/// suites that need it are skipped with a reason.
package enum TestEnvironment {
    /// A libpq URI of a server where databases and schemas may be made and dropped.
    package static let databaseURL = value("DATABASE_URL")
    /// A real broker.
    package static let kafkaBootstrapServers = value("KAFKA_BOOTSTRAP_SERVERS")
    /// The folder of the built executables.
    package static let executables = value("CARILLON_BIN")
    /// A Python with what deploy/test-requirements.txt lists.
    package static let python = value("CARILLON_PYTHON")
    /// A Python with what deploy/test-requirements-leancloud.txt lists.
    package static let pythonWithLeanCloud = value("CARILLON_PYTHON_LEANCLOUD")

    /// A Python with what deploy/test-requirements-schemathesis.txt lists.
    package static let pythonWithSchemathesis = value("CARILLON_PYTHON_SCHEMATHESIS")
    /// A Python with what deploy/test-requirements-firebase.txt lists.
    package static let pythonWithFirebase = value("CARILLON_PYTHON_FIREBASE")
    /// A Python with what deploy/test-requirements-secure.txt lists.
    package static let pythonWithSecure = value("CARILLON_PYTHON_SECURE")
    /// A Python with what deploy/test-requirements-ingest.txt lists.
    package static let pythonForIngest = value("CARILLON_PYTHON_INGEST")

    /// A folder whose `node_modules` has what EndToEndTests/JavaScript/package.json lists.
    package static let nodeClients = value("NODE_CLIENTS")
    /// A folder with the jars that EndToEndTests/Java/clients.json lists, a folder for each client.
    package static let javaClients = value("JAVA_CLIENTS")
    /// The folder of the built programs of EndToEndTests/Go.
    package static let goPrograms = value("CARILLON_GO_PROGRAMS")

    package static func value(_ name: String) -> String? {
        guard let value = ProcessInfo.processInfo.environment[name], !value.isEmpty else {
            return nil
        }
        return value
    }

    /// For names of databases, schemas, topics and apps: no two are equal, on one machine, ever.
    package static func unique(_ prefix: String) -> String {
        let random = UInt64.random(in: 0..<(1 << 40))
        return prefix + String(ProcessInfo.processInfo.processIdentifier, radix: 36)
            + String(random, radix: 36)
    }
}

/// A promise that did not hold, where there is nothing to compare.
package struct TestFailure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}

/// Runs what blocks on a thread of its own, so that the pool that the tests run on never waits.
package func onThread<Value: Sendable>(
    _ body: @escaping @Sendable () throws -> Value
) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
}

/// Asks again and again, every 10 ms, until there is an answer: for what has no event of its own,
/// such as a count behind HTTP. The suite's time limit is not enough of a bound: this one names
/// what was waited for.
package func eventually<Value>(
    _ what: String,
    within limit: Duration = .seconds(30),
    isolation: isolated (any Actor)? = #isolation,
    _ ask: () async throws -> Value?
) async throws -> Value {
    let deadline = ContinuousClock.now + limit
    while true {
        if let value = try await ask() { return value }
        guard ContinuousClock.now < deadline else {
            throw TestFailure("not within \(limit): \(what)")
        }
        try await Task.sleep(for: .milliseconds(10))
    }
}
