import ConnectionStorage
import EventLoop
import Gateway
import HTTPServer
import Observability
import ServiceKit
import ServiceShell
import Storage

/// Holds the connections of devices that no provider serves, and delivers their messages.
///
/// Flow: the dispatcher stores a message and notifies; `DeviceHub` reads the messages of its devices from
/// `ConnectionStore` and writes them to their sockets in each client's `Dialect`; acknowledgements delete
/// them, and are published to `push.outcomes` by `OutboxRelay`. `SocketSession` and `EventStream` are the
/// two kinds of connections.
@main
struct ConnectionService: HTTPServiceProgram {
    typealias Own = ConnectionConfiguration

    static let name = "connection"
    static let about = "connections: pushes for devices that hold a connection of their own"
    static let port = 8086
    static let maximumConnections = ConnectionConfiguration.maximumConnections

    static func main() async { await run() }

    static func contents(
        of service: HTTPService<ConnectionService>
    ) throws -> HTTPServiceContents {
        let (own, runtime) = (service.configuration.own, service.runtime)
        let meters = ConnectionMetrics(runtime.metrics)
        let counts = SocketCounts(maximum: own.maximum, ofAddress: own.maximumOfAddress)
        let outbox = try service.outbox()
        let hubs = service.loops.map { loop in
            DeviceHub(
                loop.database.connections,
                topics: service.configuration.common.topics,
                limits: DeviceHub.Limits(
                    loginsPerSecond: max(1, own.loginsPerSecond / service.loops.count)
                ),
                meters: meters,
                on: loop.loop,
                log: runtime.log,
                onReceived: outbox.wakeRelay
            )
        }
        let contents = zip(service.loops, hubs).map { own, hub in
            loopContents(own, hub, hubs, counts, service)
        }
        return HTTPServiceContents(
            openAPI: ConnectionSurface.openAPI,
            loops: contents,
            jobs: outbox.parts + [
                expiryJob(service.database, in: runtime),
                leave(service.database, in: runtime),
                nodeReport(hubs, service.database, in: runtime),
                drain(hubs, over: own.drain, in: runtime),
            ]
        )
    }

    private static func loopContents(
        _ own: ServiceLoop,
        _ hub: DeviceHub,
        _ hubs: [DeviceHub],
        _ counts: SocketCounts,
        _ service: HTTPService<ConnectionService>
    ) -> LoopContents {
        let heartbeat = HeartbeatList()
        let surface = ConnectionSurface(
            database: own.database,
            hub: hub,
            hubs: hubs,
            counts: counts,
            heartbeat: heartbeat,
            topics: service.configuration.common.topics
        )
        return LoopContents(
            [surface],
            parts: [
                own.part("hub") {
                    let beats = own.loop.schedule(
                        after: EventStream.beat,
                        every: EventStream.beat
                    ) { heartbeat.beat() }
                    await hub.run()
                    beats.cancel()
                },
                own.part("arrivals") {
                    await hub.listen(to: own.database)
                    await own.loop.untilCancelled()
                },
            ]
        )
    }

    /// Sends all clients away. The last job, so that it is the first to be stopped.
    private static func drain(
        _ hubs: [DeviceHub],
        over duration: Duration,
        in runtime: ServiceRuntime
    ) -> ClosurePart {
        ClosurePart("drain") {
            await runtime.mainLoop.untilCancelled()
            let limit = runtime.mainLoop.stopClock.limit(duration, share: 0.6)
            // The part's own task is cancelled by now: in it, no time would pass.
            let drains = hubs.map { hub in
                Task(executorPreference: hub.loop) { await hub.drain(over: limit) }
            }
            for drain in drains { await drain.value }
        }
    }

    /// Removes this process from the nodes, after its last report.
    private static func leave(
        _ database: PushDatabase,
        in runtime: ServiceRuntime
    ) -> ClosurePart {
        ClosurePart("node") {
            await runtime.mainLoop.untilCancelled()
            // The part's own task is cancelled by now: in it, no statement would run.
            let leaving = Task(executorPreference: runtime.mainLoop) {
                try? await database.connections.forget(node: processName())
            }
            await leaving.value
        }
    }
}

/// Makes the job that deletes expired messages, and contents that nobody needs.
private func expiryJob(_ database: PushDatabase, in runtime: ServiceRuntime) -> PeriodicJob<Void> {
    PeriodicJob(
        "connection-expiry",
        cannot: "cannot delete expired messages of connections",
        in: runtime,
        begin: { try await database.untilReady() }
    ) {
        let store = database.connections
        while !Task.isCancelled, try await store.expire(limit: 1000) == 1000 {}
        while !Task.isCancelled, try await store.expireContents(limit: 1000) == 1000 {}
        return .seconds(10)
    }
}

/// Makes the job that reports the open connections of this process, and closes those of apps that were
/// deleted or want none any more.
private func nodeReport(
    _ hubs: [DeviceHub],
    _ database: PushDatabase,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    let name = processName()
    return PeriodicJob(
        "connection-report",
        cannot: "cannot report open connections",
        in: runtime,
        begin: { try await database.untilReady() }
    ) {
        var open: [String: [String: Int]] = [:]
        for hub in hubs {
            let counts = await withCheckedContinuation { continuation in
                hub.loop.execute { continuation.resume(returning: hub.open) }
            }
            for (app, dialects) in counts {
                for (dialect, count) in dialects {
                    open[app, default: [:]][dialect, default: 0] += count
                }
            }
        }
        try await database.connections.report(ConnectionNode(name: name, open: open))
        let unserved = try await database.connections.unserved(of: Array(open.keys))
        if !unserved.isEmpty {
            for hub in hubs { hub.loop.execute { hub.close(unserved) } }
        }
        return .seconds(10)
    }
}
