import Foundation
package import JSON
import Observability

/// One child process, from its start to its end.
///
/// A thread of its own starts it, reads its lines and waits for it. The child is killed when that
/// thread ends, so that an aborted test run leaves no processes behind. It gets only the
/// environment that it is given.
package final class ChildProcess: @unchecked Sendable {
    package enum Exit: Equatable, Sendable {
        case status(Int32)
        case signal(Int32)
    }

    package enum Stream: Sendable {
        case output
        case errors
    }

    private struct Waiter {
        let id: UUID
        let matches: @Sendable (String) -> Bool
        let resume: (Result<String, any Error>) -> Void
    }

    package let name: String
    package let processID: Int32
    private let lock = Lock()
    private var lines: [Stream: [String]] = [.output: [], .errors: []]
    private var waiters: [Waiter] = []
    private var exitWaiters: [(Exit) -> Void] = []
    private var ended: Exit?

    private init(name: String, processID: Int32) {
        self.name = name
        self.processID = processID
    }

    /// Starts the program of this file, which reads `input` from its standard input.
    package static func start(
        _ path: String,
        _ arguments: [String] = [],
        environment: [String: String] = [:],
        input: [UInt8] = []
    ) async throws -> ChildProcess {
        var environment = environment
        environment["PATH"] = environment["PATH"] ?? "/usr/local/bin:/usr/bin:/bin"
        let variables = environment.map { "\($0.key)=\($0.value)" }
        return try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                do {
                    let spawned = try SpawnedProcess.start(
                        ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--", path] + arguments,
                        environment: variables,
                        input: input
                    )
                    let child = ChildProcess(
                        name: String(path.split(separator: "/").last ?? ""),
                        processID: spawned.processID
                    )
                    continuation.resume(returning: child)
                    spawned.readLines { child.received($1, on: $0) }
                    child.finished(spawned.wait())
                } catch {
                    continuation.resume(throwing: error)
                }
            }
        }
    }

    package func signal(_ number: Int32) {
        lock.withLock {
            // After its end the id may belong to another process.
            guard ended == nil else { return }
            _ = kill(processID, number)
        }
    }

    package var isRunning: Bool { lock.withLock { ended == nil } }

    package func lines(of stream: Stream = .output) -> [String] {
        lock.withLock { lines[stream] ?? [] }
    }

    /// The log lines so far.
    package var events: [JSONValue] { lines().compactMap { try? JSONValue.parse($0) } }

    /// Returns the first line that the body accepts, among past and future ones.
    package func line(
        _ what: String,
        where matches: @escaping @Sendable (String) -> Bool
    ) async throws -> String {
        let id = UUID()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let known: Result<String, any Error>? = lock.withLock {
                    if let line = lines[.output]?.first(where: matches) { return .success(line) }
                    if ended != nil { return .failure(endedBefore(what)) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    waiters.append(
                        Waiter(id: id, matches: matches) { continuation.resume(with: $0) }
                    )
                    return nil
                }
                if let known { continuation.resume(with: known) }
            }
        } onCancel: {
            let cancelled = lock.withLock {
                let index = waiters.firstIndex { $0.id == id }
                return index.map { waiters.remove(at: $0) }
            }
            cancelled?.resume(.failure(CancellationError()))
        }
    }

    /// Returns the first log line with this message.
    package func event(
        _ message: String,
        where matches: @escaping @Sendable (JSONValue) -> Bool = { _ in true }
    ) async throws -> JSONValue {
        let line = try await line("the log line \"\(message)\"") { line in
            guard line.hasPrefix("{"), let event = try? JSONValue.parse(line) else { return false }
            return event["message"]?.string == message && matches(event)
        }
        return try JSONValue.parse(line)
    }

    /// Returns the port of the listener that the log reports as opened. `surface` is that of its
    /// line: `operations` for the operators' own.
    package func port(scheme: String = "http", surface: String? = nil) async throws -> Int {
        let event = try await event("listening") {
            $0["scheme"]?.string == scheme && $0["surface"]?.string == surface
        }
        guard let port = event["port"]?.integer else {
            throw TestFailure("\(name) logged no port")
        }
        return port
    }

    /// Waits for its end. A cancelled test, as one that exceeds its time limit, kills it: otherwise
    /// the entire run would wait.
    package func exit() async -> Exit {
        await withTaskCancellationHandler {
            await end()
        } onCancel: {
            signal(SIGKILL)
        }
    }

    /// Waits for its end, also in a cancelled task.
    package func end() async -> Exit {
        await withCheckedContinuation { continuation in
            let known: Exit? = lock.withLock {
                if ended == nil { exitWaiters.append { continuation.resume(returning: $0) } }
                return ended
            }
            if let known { continuation.resume(returning: known) }
        }
    }

    /// Sends SIGTERM, and SIGKILL if it has not ended after 40 s.
    @discardableResult
    package func stop() async -> Exit {
        signal(SIGTERM)
        let retryingUntilStopped = Task {
            try await Task.sleep(for: .seconds(40))
            signal(SIGKILL)
        }
        defer { retryingUntilStopped.cancel() }
        return await exit()
    }

    /// Its last output, for the text of a failure.
    package var finalBytes: String {
        lock.withLock {
            ((lines[.output] ?? []).suffix(10) + (lines[.errors] ?? []).suffix(10))
                .map { String($0.prefix(500)) }.joined(separator: "\n")
        }
    }

    private func endedBefore(_ what: String) -> TestFailure {
        let words = ((lines[.output] ?? []).suffix(5) + (lines[.errors] ?? []).suffix(5))
            .joined(separator: "\n")
        return TestFailure("\(name) ended (\(String(describing: ended))) before \(what):\n\(words)")
    }

    private func received(_ line: String, on stream: Stream) {
        let matched: [Waiter] = lock.withLock {
            lines[stream, default: []].append(line)
            guard stream == .output else { return [] }
            let matched = waiters.filter { $0.matches(line) }
            if !matched.isEmpty { waiters.removeAll { $0.matches(line) } }
            return matched
        }
        for waiter in matched { waiter.resume(.success(line)) }
    }

    private func finished(_ exit: Exit) {
        let (left, exits) = lock.withLock {
            ended = exit
            defer {
                waiters = []
                exitWaiters = []
            }
            return (waiters, exitWaiters)
        }
        for waiter in left {
            waiter.resume(.failure(lock.withLock { endedBefore("what was waited for") }))
        }
        for resume in exits { resume(exit) }
    }
}

/// The output of a program that ran to its end.
package struct ProgramAnswer: Sendable {
    package let exit: ChildProcess.Exit
    package let output: String
    package let errors: String

    /// Returns standard output if the program ended with 0.
    package func successful(_ what: String) throws -> String {
        guard exit == .status(0) else {
            throw TestFailure("\(what) ended with \(exit): \(errors.prefix(2000))")
        }
        return output
    }
}

/// Runs a program to its end.
package func run(
    _ path: String,
    _ arguments: [String] = [],
    environment: [String: String] = [:],
    input: [UInt8] = []
) async throws -> ProgramAnswer {
    let child = try await ChildProcess.start(
        path,
        arguments,
        environment: environment,
        input: input
    )
    let exit = await child.end()
    return ProgramAnswer(
        exit: exit,
        output: child.lines().joined(separator: "\n"),
        errors: child.lines(of: .errors).joined(separator: "\n")
    )
}
