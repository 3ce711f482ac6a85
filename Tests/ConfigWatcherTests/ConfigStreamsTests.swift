import ConfigStorage
import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore
import Support
import Synchronization
import Testing

@testable import ConfigWatcher

/// Apps as stored in Postgres.
private final class Apps: Sendable {
    struct Away: Error {}

    private let state = Mutex(
        (apps: [String: LatestConfigAnnouncement](), isAway: false, timesAsked: 0)
    )

    func create(_ app: String, at createdAt: Instant) {
        state.withLock {
            $0.apps[app] = LatestConfigAnnouncement(app: app, createdAt: createdAt, version: 0)
        }
    }

    var timesAsked: Int { state.withLock { $0.timesAsked } }

    func announce(_ version: Int, of app: String) {
        state.withLock { $0.apps[app]?.version = version }
    }

    func delete(_ app: String) { state.withLock { $0.apps[app] = nil } }

    func goAway() { state.withLock { $0.isAway = true } }
    func comeBack() { state.withLock { $0.isAway = false } }

    var source: ConfigStreams.Source {
        { asked in
            try self.state.withLock { state throws(Away) in
                state.timesAsked += 1
                if state.isAway { throw Away() }
                return asked.compactMap { state.apps[$0] }
            }
        }
    }
}

@Suite("Listening clients of apps that are deleted or created again", .timeLimit(.minutes(1)))
struct ConfigStreamsTests {
    private let apps = Apps()

    /// The listeners of one loop, behind a real server.
    private struct Listening: Sendable {
        let port: Int
        let loop: EventLoop
        let streams: ConfigStreams
        let open: Gauge

        /// Listens as a client that is behind, and waits for its first event, so that it is
        /// registered.
        func listen(
            to app: String,
            createdAt: Int,
            _ form: ConfigStream.Form = .lines
        ) async throws -> Listener {
            let listener = try Listener(port: port)
            let head = "GET /\(app)/\(createdAt)/\(form) HTTP/1.1\r\nHost: a\r\n\r\n"
            try await onThread { try listener.socket.send(Array(head.utf8)) }
            try await listener.hears("\"7\"")
            return listener
        }

        /// Listens as a client that does not say which version it has, while the current one is not
        /// announced yet.
        func listenEarly(to app: String, announced: Int) async throws -> Listener {
            let listener = try Listener(port: port)
            let head = "GET /\(app)/1/lines?announced=\(announced) HTTP/1.1\r\nHost: a\r\n\r\n"
            try await onThread { try listener.socket.send(Array(head.utf8)) }
            try await listener.hears("\r\n\r\n")
            return listener
        }

        func notice(_ app: String) {
            loop.execute { streams.noticed(app) }
        }
    }

    /// A client; one call at a time.
    private final class Listener: @unchecked Sendable {
        let socket: LoopbackSocket
        private var heard: [UInt8] = []

        init(port: Int) throws { socket = try LoopbackSocket(port: UInt16(port)) }

        func hears(_ text: String) async throws { try await hear { $0.contains(text) } }

        /// Returns the body, once the server has ended it completely.
        func body() async throws -> String {
            try await hear { $0.hasSuffix("\r\n0\r\n\r\n") }
            socket.close()
            return try parse(heard, of: "listening").text
        }

        /// Reads until the condition is true. Keep-alive lines never end, so silence alone would
        /// not end this.
        private func hear(until isEnough: @escaping @Sendable (String) -> Bool) async throws {
            try await onThread {
                let deadline = ContinuousClock.now + .seconds(20)
                while !isEnough(String(decoding: self.heard, as: UTF8.self)) {
                    guard ContinuousClock.now < deadline else {
                        throw TestFailure("heard: \(String(decoding: self.heard, as: UTF8.self))")
                    }
                    self.heard += try self.socket.receive()
                }
            }
        }
    }

    private func run(
        lookEvery: Duration = .seconds(3600),
        _ body: (Listening) async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "streams")
        let metrics = Metrics()
        let streams = ConfigStreams(
            apps.source,
            lookEvery: lookEvery,
            on: loop,
            open: metrics.gauge(.configStreams),
            log: .disabled
        )
        let configuration = HTTPServerConfiguration(host: "127.0.0.1", port: 0)
        let server = try HTTPServer(configuration, loops: [loop]) { _ in
            var router = Router()
            router.on(.get, "/:app/:created/:form") { request in
                let created = request.pathParameters["created"].flatMap { Int64($0) } ?? 0
                var response = HTTPServerResponse(status: 200)
                response.stream = HTTPBodyStream(
                    fedBy: ConfigStream(
                        app: request.pathParameters["app"] ?? "",
                        createdAt: Instant(seconds: created),
                        form: request.pathParameters["form"] == "events" ? .events : .lines,
                        announced: request.queryValue("announced").flatMap { Int($0) } ?? 7,
                        current: 7,
                        knowing: request.queryValue("announced") == nil ? 0 : nil,
                        streams: streams
                    )
                )
                return response
            }
            return router
        }
        let looking = Task(executorPreference: loop) { await streams.run() }
        let result: Result<Void, any Error>
        do {
            let port = try await server.start().first?.port ?? 0
            try await body(
                Listening(
                    port: port,
                    loop: loop,
                    streams: streams,
                    open: metrics.gauge(.configStreams)
                )
            )
            result = .success(())
        } catch {
            result = .failure(error)
        }
        looking.cancel()
        await looking.value
        await server.stop(within: .milliseconds(200))
        await loop.stop()
        try result.get()
    }

    /// Expects one object a line, and a last one that says when to reconnect.
    private func expectFarewell(_ body: String, at version: String) throws {
        let last = try #require(body.split(separator: "\n").last)
        let object = try JSONValue.parse(Array(last.utf8))
        #expect(object["latestTemplateVersionNumber"]?.string == version)
        let wait = try #require(object["retryIntervalSeconds"]?.integer)
        #expect((1...30).contains(wait))
    }

    @Test("Streams of a deleted app end with the time to reconnect")
    func deleted() async throws {
        for app in ["shop", "other"] { apps.create(app, at: Instant(seconds: 1)) }
        try await run { listening in
            let lines = try await listening.listen(to: "shop", createdAt: 1)
            let events = try await listening.listen(to: "shop", createdAt: 1, .events)
            let others = try await listening.listen(to: "other", createdAt: 1)
            #expect(listening.open.value == 3)
            apps.announce(8, of: "shop")
            listening.notice("shop")
            try await lines.hears("\"8\"}")
            apps.delete("shop")
            listening.notice("shop")
            try expectFarewell(try await lines.body(), at: "8")
            let last = try await events.body().split(separator: "\n").last
            #expect(last?.wholeMatch(of: /retry: [1-9][0-9]?000/) != nil)
            try await eventually("they are not counted") { listening.open.value == 1 ? () : nil }
            apps.announce(8, of: "other")
            listening.notice("other")
            try await others.hears("\"8\"}")
            others.socket.close()
        }
    }

    @Test(
        "A client that connects between a publish and its announcement is notified by the announcement"
    )
    func betweenPublishAndAnnouncement() async throws {
        apps.create("shop", at: Instant(seconds: 1))
        apps.announce(6, of: "shop")
        try await run { listening in
            let listener = try await listening.listenEarly(to: "shop", announced: 6)
            apps.announce(7, of: "shop")
            listening.notice("shop")
            try await listener.hears("\"7\"}")
            listener.socket.close()
        }
    }

    @Test("New listeners share one query, even for an app that has announced nothing")
    func nothingAnnounced() async throws {
        apps.create("shop", at: Instant(seconds: 1))
        try await run { listening in
            let (streams, loop) = (listening.streams, listening.loop)
            func announced() async throws -> Int {
                try await Task(executorPreference: loop) {
                    try await streams.announced(of: "shop", createdAt: Instant(seconds: 1))
                }
                .value
            }
            let first = try await announced()
            #expect(first == 0)
            let listener = try await listening.listen(to: "shop", createdAt: 1)
            // The first listener causes a query, whose result is enough for the others.
            try await eventually("the next is not asked for") {
                let before = apps.timesAsked
                let now = try await announced()
                #expect(now == 0)
                return apps.timesAsked == before ? () : nil
            }
            listener.socket.close()
        }
    }

    @Test("Streams of an app end when it is created again, and those of the new one do not")
    func madeAgain() async throws {
        apps.create("shop", at: Instant(seconds: 1))
        try await run { listening in
            let old = try await listening.listen(to: "shop", createdAt: 1)
            apps.create("shop", at: Instant(seconds: 2))
            // No notification arrived; the first listener causes the query.
            let new = try await listening.listen(to: "shop", createdAt: 2)
            try expectFarewell(try await old.body(), at: "7")
            apps.announce(8, of: "shop")
            listening.notice("shop")
            try await new.hears("\"8\"}")
            #expect(listening.open.value == 1)
            // This one was admitted before the change was known.
            let late = try await listening.listen(to: "shop", createdAt: 1)
            try expectFarewell(try await late.body(), at: "7")
            try await eventually("it is not counted") { listening.open.value == 1 ? () : nil }
            new.socket.close()
        }
    }

    @Test("A deletion is found without a notification")
    func unnoticed() async throws {
        apps.create("shop", at: Instant(seconds: 1))
        try await run(lookEvery: .milliseconds(10)) { listening in
            let listener = try await listening.listen(to: "shop", createdAt: 1)
            apps.delete("shop")
            try expectFarewell(try await listener.body(), at: "7")
        }
    }

    @Test("A Postgres that does not answer does not end the streams of an app")
    func away() async throws {
        apps.create("shop", at: Instant(seconds: 1))
        try await run { listening in
            apps.goAway()
            let listener = try await listening.listen(to: "shop", createdAt: 1)
            listening.notice("")
            apps.announce(8, of: "shop")
            apps.comeBack()
            try await listener.hears("\"8\"}")
            #expect(listening.open.value == 1)
            listener.socket.close()
        }
    }
}
