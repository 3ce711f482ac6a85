import ConfigStorage
import EventLoop
import JSON
import Observability
import PushEvents
import RemoteConfig
import ServiceKit
import Storage

/// Validates rows that other systems wrote into the table before they take effect: a valid template becomes
/// current and is announced like one that was published here; an invalid one is marked with the reason.
///
/// Shutdown: between two rows.
actor ConfigRowChecker: ServicePart {
    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "config-rows"
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    /// The poll interval while no notification arrives.
    private static let idleWait = Duration.seconds(2)
    /// The limit of a template, as for a request that publishes.
    static let maximumBytes = 8 << 20

    private let database: PushDatabase
    private let topics: KafkaTopics
    private let log: Log
    private let counters: [ConfigVersionState: Counter]
    private nonisolated let worker: ClaimWorker

    init(database: PushDatabase, topics: KafkaTopics, runtime: ServiceRuntime) {
        loop = runtime.mainLoop
        self.database = database
        self.topics = topics
        log = runtime.log
        counters = [
            .good: runtime.metrics.counter(.configRows, ["result": "good"]),
            .refused: runtime.metrics.counter(.configRows, ["result": "refused"]),
        ]
        worker = ClaimWorker(
            "cannot validate templates written by other systems",
            wokenBy: WakeUp(on: runtime.mainLoop),
            listening: { wake in
                try await database.onNotification(.configRows) { _ in wake() }
            },
            on: runtime.mainLoop,
            log: runtime.log
        )
    }

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        await worker.run {
            let (topics, loop) = (topics, loop)
            let checked = try await database.config.checkNext(
                maximumBytes: Self.maximumBytes,
                verdict: { row in
                    await Self.verdict(
                        on: row.template,
                        of: row.stored.namespace,
                        described: row.stored.description,
                        on: loop
                    )
                }
            ) { stored in
                ConfigPublishedRecord(
                    project: stored.app,
                    namespace: stored.namespace,
                    version: stored.version,
                    updateType: stored.updateType
                )
                .record(topics)
            }
            guard let checked else { return .sleep(atMost: Self.idleWait) }
            logResult(checked)
            return .again
        }
    }

    /// Validates a row. Returns the template in the form in which a publish over HTTP would store
    /// it, or the reason why it is refused.
    static func verdict(
        on text: String?,
        of namespace: String,
        described description: String,
        on loop: EventLoop
    ) async -> ConfigStore.RowVerdict {
        guard let namespace = ConfigNamespace(rawValue: namespace) else {
            return .refused("the namespace is unknown")
        }
        guard let text else {
            return .refused("the template is larger than \(maximumBytes) bytes")
        }
        guard description.unicodeScalars.count <= 1024 else {
            return .refused("the description is longer than 1024 characters")
        }
        do {
            let template = try await loop.blocking {
                try ConfigTemplate(bytes: Array(text.utf8), namespace: namespace).object
            }
            return .holds(as: template)
        } catch let error as ConfigTemplateError {
            return .refused(error.description)
        } catch let error as JSONError {
            return .refused("the template cannot be read: \(error.description)")
        } catch {
            return .refused("the template cannot be read")
        }
    }

    private func logResult(_ checked: StoredConfigVersion) {
        counters[checked.state]?.add()
        guard let reason = checked.reason else { return }
        log.warning(
            "a template that was written into the table is not served",
            [
                .app: .string(checked.app),
                .name: .string(checked.namespace),
                .version: .integer(checked.version),
                .reason: .string(reason),
            ]
        )
    }
}
