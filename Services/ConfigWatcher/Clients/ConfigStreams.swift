import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore
import PushStorage
import ServiceKit

/// The clients of one loop that listen for announcements, by app. Confined to the loop.
///
/// None has a task or a timer of its own: an announcement is one write to each, and so is what keeps
/// the lines alive. What is written to many is written in portions, between which the loop does its
/// other work. Those of an app that was deleted are ended, as on a stop; so are those of its
/// predecessor where an app of its id was created since.
final class ConfigStreams: @unchecked Sendable {
    static let beat = Duration.seconds(25)
    private static let portion = 500
    private static let appsAtOnce = 1000

    /// What Postgres says of apps; those that do not exist are left out.
    typealias Source = @Sendable (_ apps: [String]) async throws -> [LatestConfigAnnouncement]

    private struct Listeners {
        var streams: [ObjectIdentifier: ConfigStream] = [:]
        /// The latest that they were told of, 0 where there is none; `nil`: nobody has looked.
        var announced: Int?
    }

    private let source: Source
    private let lookEvery: Duration
    private let loop: EventLoop
    private let open: Gauge
    private let log: Log
    private let bell: Bell
    /// By the app's id and when it was created: one of its id that was created later is another.
    private var listeners: [String: [Instant: Listeners]] = [:]
    /// Whose announcements are to be looked at.
    private var noticedApps: Set<String> = []

    /// - Parameters:
    ///   - source: Asked about the apps that have listeners.
    ///   - lookEvery: How often at least: a notification may be missed while the listener reconnects.
    ///   - loop: Of the streams.
    ///   - open: Counts them.
    ///   - log: Told where Postgres does not answer.
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
        bell = Bell(on: loop)
    }

    // MARK: Who listens

    /// What was announced of an app before a client of it begins to listen: as its other listeners were
    /// told, else as Postgres has it.
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
        // What was announced while it was on its way here.
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

    // MARK: What is announced

    /// Something was announced of an app, or it was changed; empty: perhaps any.
    func noticed(_ app: String) {
        if app.isEmpty {
            noticedApps.formUnion(listeners.keys)
        } else if listeners[app] != nil {
            noticedApps.insert(app)
        }
        if !noticedApps.isEmpty { bell.ring() }
    }

    /// Looks at announcements, and keeps the lines alive, until its task is cancelled.
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
            await bell.wait(atMost: lookEvery)
            if noticedApps.isEmpty { noticedApps.formUnion(listeners.keys) }
        }
        beats.cancel()
    }

    private func look(_ apps: [String]) async {
        do {
            // Who begins to listen meanwhile may know of an app that this answer does not.
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

    /// There is no such app any more.
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

/// One client that listens, as long as its connection does. Confined to its loop.
final class ConfigStream: HTTPStreamFeed, @unchecked Sendable {
    enum Form: Sendable {
        /// What Firebase's SDKs read: flat JSON objects, one a line, each in a piece of its own.
        case lines
        case events
    }

    let app: String
    /// An app of this id that was created later is another.
    let createdAt: Instant
    private let form: Form
    private let streams: ConfigStreams
    /// The app's current version as it begins. It may not be announced yet: its client is told of it at
    /// once where he is behind, and again when it is.
    private let current: Int
    private let isBehind: Bool
    /// The latest announcement that its client needs not be told of.
    private var told: Int
    private var writer: HTTPBodyWriter?

    /// - Parameters:
    ///   - app: The app's id.
    ///   - createdAt: When that app was created.
    ///   - form: How it is told.
    ///   - announced: What was announced of the app before `current` was asked for.
    ///   - current: The app's current version.
    ///   - known: The version that its client says he has; `nil`: he does not ask what has been.
    ///   - streams: Of its loop.
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
        told = known != nil && !isBehind ? max(announced, current) : announced
    }

    func began(_ writer: HTTPBodyWriter) {
        self.writer = writer
        if isBehind { writer.post(form.news(of: current)) }
        streams.add(self)
    }

    func tell(_ version: Int) {
        guard version > told else { return }
        told = version
        writer?.post(form.news(of: version))
    }

    func keepAlive() { writer?.post(form.beat) }

    func end() { writer?.finish() }

    func lastWords() -> [UInt8] {
        form.farewell(at: max(told, current), retryAfter: Int.random(in: 1...30))
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

    /// Without a word of when to come again, SDKs come again at once. iOS takes an object without a
    /// version for version 1.
    func farewell(at version: Int, retryAfter seconds: Int) -> [UInt8] {
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
