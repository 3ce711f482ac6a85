internal import EventLoop
internal import Glibc
package import Observability
package import Settings

/// The number of loops of a service.
package enum LoopCount: Sendable {
    case one
    /// One for each core that this process may use, sharing the service's port.
    case perCore

    fileprivate var value: Int {
        switch self {
        case .one: 1
        case .perCore: min(64, EventLoop.usableCores)
        }
    }
}

/// Runs a service for its whole life. Never returns.
///
/// Exit codes: 0 after a graceful stop, 1 if it failed while running, 64 for unknown arguments, 78
/// if it could not start.
///
/// `about` is one line for `--help`, `variables` those of the service's own. `reading` validates
/// the configuration; nothing starts before it has succeeded. `parts` makes the parts in the order
/// of their dependence. It must not wait for other systems: a part does that in its `run`, and
/// reports it by `notReadyReason`. `operationsPort` is for a service without routes of its own: the
/// default of `HTTP_PORT`, where it answers its operators unless `OPERATIONS_PORT` is set.
package func runService<Configuration: Sendable>(
    _ service: String,
    about: String,
    variables: [SettingEntry] = [],
    loops: LoopCount = .one,
    operationsPort: Int? = nil,
    reading: (ConfigurationReader) throws -> Configuration,
    parts: (Configuration, ServiceRuntime) async throws -> [any ServicePart]
) async -> Never {
    signal(SIGPIPE, SIG_IGN)
    answerArguments(
        of: service,
        about: about,
        variables: ServiceVariable.all(beside: variables, operationsPort: operationsPort)
    )
    let descriptors = DescriptorBudget(total: raiseDescriptorLimit())
    let configuration: Configuration
    let runtime: ServiceRuntime
    let grace: Duration
    var format: LogFormat?
    do {
        let reader = try ConfigurationReader.ofProcess()
        format = try? logFormat(reader)
        let log = try makeLog(service, reader)
        grace = try reader.value(of: ServiceVariable.shutdownGrace)
        configuration = try reading(reader)
        let operations = try OperationsConfiguration(reader, ownPort: operationsPort)
        runtime = ServiceRuntime(
            service: service,
            loops: try (0..<loops.value).map { try EventLoop(name: "loop-\($0)") },
            log: log,
            metrics: Metrics(),
            readiness: Readiness(),
            operations: operations,
            descriptors: descriptors
        )
    } catch {
        fail(service, "cannot start", error, exitCode: 78, format: format)
    }
    runtime.metrics.gauge(.serviceInfo, ["service": service, "version": carillonVersion]).set(1)
    watchTurns(runtime)
    runtime.log.info("starting", [.version: .string(carillonVersion)])
    do {
        var parts = try await parts(configuration, runtime)
        if let server = runtime.operations.server {
            parts.insert(try OperationsServer(server, runtime), at: 0)
        }
        let life = ServiceLife(parts, runtime: runtime, grace: grace)
        let failure = await life.run()
        if let failure {
            let exitCode = (failure as? ServiceFailure)?.exitCode ?? 1
            fail(service, "failed", failure, exitCode: exitCode, format: format)
        }
        runtime.log.info("stopped")
        // Not `exit`: its handlers would free memory that the loops' threads still use.
        _exit(0)
    } catch {
        fail(service, "cannot start", error, exitCode: 78, format: format)
    }
}

/// Runs the parts until a signal or a failure, then stops them in reverse.
private struct ServiceLife {
    private enum Ending: Sendable {
        case signal(Int32)
        case part(String, (any Error)?)
    }

    private let parts: [any ServicePart]
    private let runtime: ServiceRuntime
    private let grace: Duration

    init(_ parts: [any ServicePart], runtime: ServiceRuntime, grace: Duration) {
        self.parts = parts
        self.runtime = runtime
        self.grace = grace
    }

    /// - Returns: The failure, if there was one.
    func run() async -> (any Error)? {
        let (endings, ending) = AsyncStream.makeStream(of: Ending.self)
        let loop = runtime.mainLoop
        loop.execute {
            for number in [SIGTERM, SIGINT] {
                _ = loop.onSignal(number) { ending.yield(.signal(number)) }
            }
        }
        let tasks = parts.map { part in
            Task(executorPreference: loop) {
                do {
                    try await part.run()
                    ending.yield(.part(part.name, nil))
                } catch {
                    ending.yield(.part(part.name, error))
                }
            }
        }
        runtime.readiness.started(parts)
        runtime.log.info("started")
        var failure: (any Error)?
        var iterator = endings.makeAsyncIterator()
        switch await iterator.next() {
        case .signal(let number):
            runtime.log.info("stopping", [.signal: .integer(Int(number))])
        case .part(let name, let error):
            failure = error ?? ServiceFailure("the part \(name) ended unexpectedly")
            runtime.log.error(
                "stopping after a failure",
                [.part: .string(name), .error: .string("\(error.map { "\($0)" } ?? "ended")")]
            )
        case nil: break
        }
        runtime.readiness.stopping()
        for loop in runtime.loops { loop.stopClock.begin(within: grace) }
        gracePeriodEnd(after: grace)
        for (part, task) in zip(parts, tasks).reversed() {
            task.cancel()
            await task.value
            runtime.log.debug("part stopped", [.part: .string(part.name)])
        }
        return failure
    }

    /// Ends the process if a stop takes too long, or at a second signal.
    private func gracePeriodEnd(after grace: Duration) {
        let (runtime, loop) = (runtime, runtime.mainLoop)
        loop.execute {
            loop.schedule(after: grace) {
                runtime.log.critical(
                    "stopped by force: SHUTDOWN_GRACE has passed",
                    [.durationMilliseconds: .integer(Int(grace / .milliseconds(1)))]
                )
                _exit(1)
            }
            for number in [SIGTERM, SIGINT] {
                _ = loop.onSignal(number) {
                    runtime.log.critical("stopped by force: a second signal")
                    _exit(1)
                }
            }
        }
    }
}

private func answerArguments(of service: String, about: String, variables: [SettingEntry]) {
    let options: [Arguments.Option] = [
        .flag("--help", "this text"),
        .flag("--version", "the version"),
    ]
    do throws(ArgumentsError) {
        let arguments = try Arguments(
            Array(CommandLine.arguments.dropFirst()),
            options: options,
            maximumOperands: 0
        )
        if arguments.has("--version") {
            Log.standardOutput(Array("carillon-\(service) \(carillonVersion)\n".utf8))
            exit(0)
        }
        if arguments.has("--help") {
            Log.standardOutput(
                Array(
                    """
                    carillon-\(service): \(about)

                    \(Arguments.help(options))

                    It is configured by environment variables, or by a file that CARILLON_CONFIG
                    names; the environment wins.

                    \(SettingEntry.help(variables))

                    """.utf8
                )
            )
            exit(0)
        }
    } catch {
        let text = "carillon-\(service): \(error.description); see --help\n"
        unsafe Array(text.utf8).withUnsafeBytes { bytes in
            _ = unsafe write(STDERR_FILENO, bytes.baseAddress, bytes.count)
        }
        exit(64)
    }
}

package func makeLog(_ service: String, _ reader: ConfigurationReader) throws -> Log {
    let level = try reader.value(of: ServiceVariable.logLevel)
    return Log(service: service, level: level, format: try logFormat(reader))
}

private func logFormat(_ reader: ConfigurationReader) throws -> LogFormat {
    try reader.optional(ServiceVariable.logFormat) ?? defaultLogFormat()
}

private func defaultLogFormat() -> LogFormat { isatty(STDOUT_FILENO) == 1 ? .text : .json }

/// Reports a failure, in the configured format if that could be read.
private func fail(
    _ service: String,
    _ message: StaticString,
    _ error: any Error,
    exitCode: Int32,
    format: LogFormat?
) -> Never {
    let log = Log(service: service, level: .info, format: format ?? defaultLogFormat())
    var data: LogData = [.error: .string("\(error)")]
    if let error = error as? ConfigurationError { data[.variable] = .string(error.variable) }
    log.critical(message, data)
    _exit(exitCode)
}

/// Raises the limit to the hard limit: a service holds thousands of connections.
///
/// - Returns: How many descriptors this process can open.
private func raiseDescriptorLimit() -> Int {
    let number = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    var limit = rlimit()
    guard unsafe getrlimit(number, &limit) == 0 else { return DescriptorBudget.assumedTotal }
    let before = limit.rlim_cur
    limit.rlim_cur = limit.rlim_max
    let isRaised = unsafe setrlimit(number, &limit) == 0
    return Int(clamping: isRaised ? limit.rlim_max : before)
}

/// Counts and logs turns of a loop longer than 50 ms: all its connections wait that long.
private func watchTurns(_ runtime: ServiceRuntime) {
    let late = runtime.metrics.counter(.loopTurnsLate)
    for loop in runtime.loops {
        loop.watchTurns { turn in
            late.add(1)
            runtime.log.warning(
                "loop held up",
                [
                    .name: .string(loop.name),
                    .durationMilliseconds: .double(turn / .milliseconds(1)),
                ]
            )
        }
    }
}
