import ConfigStorage
import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore
import ServiceKit

/// The clients of one loop that listen for announcements, by app. Confined to the loop.
///
/// Clients have no task or timer of their own: an announcement is one write to each, and so is a heartbeat.
/// Writes to many clients are split into batches, between which the loop does other work. The streams of a
/// deleted app are ended as on a stop, also if a new app was created with the same id since.
final class ConfigStreams: @unchecked Sendable {
    static let beat = Duration.seconds(25)
    private static let portion = 500
    private static let appsAtOnce = 1000

    /// The query for the latest announcements of apps; apps that do not exist are left out.
    typealias Source = @Sendable (_ apps: [String]) async throws -> [LatestConfigAnnouncement]

    private struct Listeners {
        var streams: [ObjectIdentifier: ConfigStream] = [:]
        /// The latest version of which these clients were notified: 0 for none, `nil` before the
        /// first query.
        var announced: Int?
    }

    private let source: Source
    private let lookEvery: Duration
    private let loop: EventLoop
    private let open: Gauge
    private let log: Log
    private let wakeUp: WakeUp
    /// The listeners by the app's id and its time of creation, as a later app may have the same id.
    private var listeners: [String: [Instant: Listeners]] = [:]
    /// The apps whose announcements are to be looked up.
    private var noticedApps: Set<String> = []

    /// - Parameters:
    ///   - source: The query for the announcements of the apps that have listeners.
    ///   - lookEvery: The poll interval. Polling finds announcements whose NOTIFY was missed while the
    ///     database connection was down.
    ///   - loop: The loop of the streams.
    ///   - open: The gauge of open streams.
    ///   - log: The log for failed queries.
    init(
        _ source: @escaping Source,
        lookEvery: Duration = .seconds(5),
        on loop: EventLoop,
        open: Gauge,
        log: Log
    ) {
        self.source = source
        self.lookEvery = lookEvery
        self.loop = loop
        self.open = open
        self.log = log
        wakeUp = WakeUp(on: loop)
    }

    // MARK: Listeners

    /// Returns the version that was announced before a client begins to listen. If the app has
    /// other listeners, it is the version of which they were notified, else the one in Postgres.
    func announced(of app: String, createdAt: Instant) async throws -> Int {
        loop.checkIsolated()
        if let known = listeners[app]?[createdAt]?.announced { return known }
        return try await source([app]).first { $0.createdAt == createdAt }?.version ?? 0
    }

    func add(_ stream: ConfigStream) {
        open.add(1)
        let isFirst = listeners[stream.app]?[stream.createdAt] == nil
        listeners[stream.app, default: [:]][stream.createdAt, default: Listeners()]
            .streams[ObjectIdentifier(stream)] = stream
        if isFirst { noticed(stream.app) }
        // A version may have been announced while the stream was being opened.
        stream.tell(listeners[stream.app]?[stream.createdAt]?.announced ?? 0)
    }

    func remove(_ stream: ConfigStream) {
        let key = ObjectIdentifier(stream)
        guard
            listeners[stream.app]?[stream.createdAt]?.streams.removeValue(forKey: key) != nil
        else { return }
        open.add(-1)
        if listeners[stream.app]?[stream.createdAt]?.streams.isEmpty == true {
            listeners[stream.app]?[stream.createdAt] = nil
        }
        if listeners[stream.app]?.isEmpty == true { listeners[stream.app] = nil }
    }

    // MARK: Announcements

    /// Schedules a look-up of an app that has a new announcement or was changed. An empty id stands for all
    /// apps that have listeners.
    func noticed(_ app: String) {
        if app.isEmpty {
            noticedApps.formUnion(listeners.keys)
        } else if listeners[app] != nil {
            noticedApps.insert(app)
        }
        if !noticedApps.isEmpty { wakeUp.signal() }
    }

    /// Looks up announcements and sends heartbeats, until its task is cancelled.
    func run() async {
        loop.checkIsolated()
        let beats = loop.schedule(after: Self.beat, every: Self.beat) { [self] in
            let all = listeners.values.flatMap(\.values).flatMap(\.streams.values)
            each(all) { $0.keepAlive() }
        }
        while !Task.isCancelled {
            let apps = Array(noticedApps.prefix(Self.appsAtOnce))
            noticedApps.subtract(apps)
            if !apps.isEmpty { await look(apps) }
            if !noticedApps.isEmpty { continue }
            await wakeUp.wait(atMost: lookEvery)
            if noticedApps.isEmpty { noticedApps.formUnion(listeners.keys) }
        }
        beats.cancel()
    }

    private func look(_ apps: [String]) async {
        do {
            // Only listeners from before the query are ended. An app that was created during the
            // query is not in its result, but exists.
            let listening = apps.flatMap { app in
                (listeners[app] ?? [:]).keys.map { (app: app, createdAt: $0) }
            }
            var latest: [String: LatestConfigAnnouncement] = [:]
            for one in try await source(apps) { latest[one.app] = one }
            for (app, createdAt) in listening {
                if let known = latest[app], known.createdAt == createdAt {
                    announce(known.version, to: app, createdAt)
                } else {
                    end(app, createdAt)
                }
            }
        } catch {
            if Task.isCancelled { return }
            log.warning("announcements cannot be read", [.error: .string("\(error)")])
            noticedApps.formUnion(apps)
            try? await loop.sleep(for: .milliseconds(200))
        }
    }

    private func announce(_ version: Int, to app: String, _ createdAt: Instant) {
        guard let known = listeners[app]?[createdAt], version > known.announced ?? -1 else {
            return
        }
        listeners[app]?[createdAt]?.announced = version
        each(Array(known.streams.values)) { $0.tell(version) }
    }

    /// Ends the streams of an app that no longer exists.
    private func end(_ app: String, _ createdAt: Instant) {
        guard let known = listeners[app]?[createdAt] else { return }
        each(Array(known.streams.values)) { $0.end() }
    }

    private func each(
        _ streams: [ConfigStream],
        from start: Int = 0,
        _ body: @escaping @Sendable (ConfigStream) -> Void
    ) {
        let end = min(streams.count, start + Self.portion)
        for stream in streams[start..<end] { body(stream) }
        guard end < streams.count else { return }
        loop.execute { [self] in each(streams, from: end, body) }
    }
}

/// One listening client, for the lifetime of its connection. Confined to its loop.
final class ConfigStream: HTTPStreamFeed, @unchecked Sendable {
    enum Form: Sendable {
        /// The format of Firebase's SDKs: flat JSON objects, one a line, each in its own chunk.
        case lines
        case events
    }

    let app: String
    /// The time when the app was created, as a later app may have the same id.
    let createdAt: Instant
    private let form: Form
    private let streams: ConfigStreams
    /// The app's current version when the stream begins. It may not be announced yet: a client with an older
    /// version is notified of it at once, and again when it is announced.
    private let current: Int
    private let isBehind: Bool
    /// The version up to which announcements are not sent to the client.
    private var announcedVersion: Int
    private var writer: HTTPBodyWriter?

    /// - Parameters:
    ///   - app: The app's id.
    ///   - createdAt: The time when that app was created.
    ///   - form: The format of notifications.
    ///   - announced: The version that was announced before `current` was queried.
    ///   - current: The app's current version.
    ///   - known: The version that the client says it has; `nil` if it wants only announcements from now on.
    ///   - streams: The streams of its loop.
    init(
        app: String,
        createdAt: Instant,
        form: Form,
        announced: Int,
        current: Int,
        knowing known: Int?,
        streams: ConfigStreams
    ) {
        self.app = app
        self.createdAt = createdAt
        self.form = form
        self.streams = streams
        self.current = current
        isBehind = known.map { $0 < current } ?? false
        announcedVersion = known != nil && !isBehind ? max(announced, current) : announced
    }

    func began(_ writer: HTTPBodyWriter) {
        self.writer = writer
        if isBehind { writer.post(form.news(of: current)) }
        streams.add(self)
    }

    func tell(_ version: Int) {
        guard version > announcedVersion else { return }
        announcedVersion = version
        writer?.post(form.news(of: version))
    }

    func keepAlive() { writer?.post(form.beat) }

    func end() { writer?.finish() }

    func finalBytes() -> [UInt8] {
        form.closingEvent(at: max(announcedVersion, current), retryAfter: Int.random(in: 1...30))
    }

    func ended(_ writer: HTTPBodyWriter) {
        self.writer = nil
        streams.remove(self)
    }
}

extension ConfigStream.Form {
    func news(of version: Int) -> [UInt8] {
        switch self {
        case .lines: return Array("{\"latestTemplateVersionNumber\":\"\(version)\"}\n".utf8)
        case .events:
            let data = "{\"CONFIG_STATE\":\"STALE\",\"CONFIG_VERSION\":\"\(version)\"}"
            return ServerSentEvent(data, event: "config", id: String(version)).bytes
        }
    }

    var beat: [UInt8] {
        switch self {
        case .lines: Array("\n".utf8)
        case .events: Array(":\n\n".utf8)
        }
    }

    /// Returns the last event of a stream. It has a time to reconnect, as SDKs would reconnect at
    /// once without it, and a version, as iOS reads an object without a version as version 1.
    func closingEvent(at version: Int, retryAfter seconds: Int) -> [UInt8] {
        switch self {
        case .lines:
            Array(
                "{\"latestTemplateVersionNumber\":\"\(version)\",\"retryIntervalSeconds\":\(seconds)}\n"
                    .utf8
            )
        case .events: Array("retry: \(seconds * 1000)\n\n".utf8)
        }
    }

    var contentType: String {
        switch self {
        case .lines: "application/json"
        case .events: "text/event-stream"
        }
    }
}
