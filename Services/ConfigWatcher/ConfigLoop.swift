import Door
import EventLoop
import HTTPServer
import Observability
import PushStorage
import RemoteConfig
import ServiceKit

/// What one loop has for the clients of remote config: templates, streams, and what it notes of
/// fetches.
struct ConfigLoop: Sendable {
    let loop: EventLoop
    let surfaces: [any Surface]
    /// They use the database, and the listener uses them.
    let parts: [any ServicePart]

    init(
        _ number: Int,
        _ rooms: LoopRooms,
        limits: FetchLimits,
        _ configuration: ConfigWatcherConfiguration,
        _ runtime: ServiceRuntime
    ) {
        let (loop, database) = (rooms.loop, rooms.database)
        let pool = FairPool(on: loop)
        let memory = ConfigMemory(
            .postgres(database),
            compilingIn: pool,
            on: loop,
            log: runtime.log
        )
        let streams = ConfigStreams(
            { apps in
                try await database.configAnnouncements.latest(
                    of: apps,
                    in: ConfigNamespace.firebase.rawValue
                )
            },
            on: loop,
            open: runtime.metrics.gauge(.configStreams),
            log: runtime.log
        )
        let notes = FetchNotes(database, on: loop, log: runtime.log)
        self.loop = loop
        surfaces = [
            FirebaseSurface(
                loop: loop,
                database: database,
                topics: configuration.topics,
                memory: memory,
                streams: streams,
                limits: limits,
                notes: notes,
                figures: ConfigFigures(runtime.metrics),
                turns: PublishTurns(on: loop),
                fetchTurns: FairTurns(on: loop),
                pool: pool,
                stopped: StoppedConditions(
                    runtime.metrics.counter(.configConditionsStopped),
                    log: runtime.log
                ),
                document: OpenAPIDocument.bytes(withOperations: !runtime.operations.isApart)
            )
        ]
        // The service's own tasks run on its first loop.
        let ways: [(name: String, run: @Sendable () async -> Void)] = [
            (
                "templates",
                {
                    await Self.follow(.config, database, on: loop) { app in
                        memory.noticed()
                        streams.noticed(app)
                    }
                }
            ),
            ("apps", { await Self.follow(.credentials, database, on: loop, streams.noticed) }),
            ("streams", { await streams.run() }),
            ("fetch-notes", { await notes.run() }),
        ]
        parts = ways.map { way in
            Part("\(way.name)-\(number)") {
                let running = Task(executorPreference: loop) { await way.run() }
                await withTaskCancellationHandler {
                    await running.value
                } onCancel: {
                    running.cancel()
                }
            }
        }
    }

    /// Listens until its task is cancelled.
    private static func follow(
        _ channel: StorageChannel,
        _ database: PushDatabase,
        on loop: EventLoop,
        _ tell: @escaping @Sendable (_ app: String) -> Void
    ) async {
        guard (try? await database.untilReady()) != nil else { return }
        var isListening = false
        while !Task.isCancelled {
            if !isListening {
                isListening =
                    (try? await database.onNotification(channel) { app in
                        loop.execute { tell(app) }
                    }) != nil
            }
            do { try await loop.sleep(for: .seconds(1)) } catch { return }
        }
    }
}
