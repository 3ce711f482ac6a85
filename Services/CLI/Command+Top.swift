import EventLoop
import Glibc
import JSON
import ServiceKit
import Storage

extension Command {
    static let top = Command(
        "top",
        "Show rates, circuit breakers, services and lag, live",
        options: [
            .value(
                "--interval",
                "<seconds>",
                "the time between two readings, 1 to 3600; 2 by default"
            ),
            .flag("--once", "print one table and exit; also the form if the output is no terminal"),
            .value("--app", "<app>", "only this app's rates and circuit breakers"),
            .flag("--json", "print JSON: one object, or one a line until Ctrl-C"),
        ]
    ) { arguments, context in
        let seconds = try arguments.integer("--interval", in: 1...3600, default: 2)
        let database = try await context.database()
        let app = arguments.value("--app")
        if let app { _ = try await existing(app, database) }
        let view = TopView(database, app: app, isJSON: arguments.has("--json"), on: context.loop)
        guard !arguments.has("--once"), Terminal.isScreen else {
            try await view.printOnce()
            return 0
        }
        try await view.run(every: .seconds(seconds))
        return 0
    }
}

/// Reads a snapshot again and again, and shows it until Ctrl-C.
struct TopView {
    private let database: PushDatabase
    private let app: String?
    private let isJSON: Bool
    private let loop: EventLoop

    init(_ database: PushDatabase, app: String?, isJSON: Bool, on loop: EventLoop) {
        self.database = database
        self.app = app
        self.isJSON = isJSON
        self.loop = loop
    }

    func printOnce() async throws {
        let snapshot = try await TopSnapshot.read(database, app: app)
        if isJSON {
            Terminal.printLine(.object(snapshot.json))
        } else {
            Terminal.printLine(TopTable(snapshot: snapshot).lines.joined(separator: "\n"))
        }
    }

    func run(every interval: Duration) async throws {
        let interruption = Interruption()
        var signals = interruption.watch(on: loop)
        if !isJSON {
            Terminal.enterScreen()
            // A signal gives the terminal back at once, even while Postgres does not answer.
            for number in [SIGINT, SIGTERM] {
                signals.append(loop.onSignal(number) { Terminal.leaveScreen() })
            }
        }
        defer {
            if !isJSON { Terminal.leaveScreen() }
            for signal in signals { signal.close() }
        }
        var screen = Screen()
        while !interruption.hasCome {
            do {
                screen.snapshot = try await TopSnapshot.read(database, app: app)
                screen.problem = nil
            } catch {
                // Without a first snapshot, or for a program, there is nothing to show.
                if screen.snapshot == nil || isJSON { throw error }
                screen.problem = "\(error)"
            }
            if interruption.hasCome { return }
            if isJSON, let snapshot = screen.snapshot {
                Terminal.printLine(.object(snapshot.json))
            }
            try await wait(interval, until: interruption, screen)
        }
    }

    /// The last reading, and why there is no newer one.
    private struct Screen {
        var snapshot: TopSnapshot?
        var problem: String?
    }

    /// Shows the screen, and again when the terminal's size changes.
    private func wait(
        _ interval: Duration,
        until interruption: Interruption,
        _ screen: Screen
    ) async throws {
        let end = ContinuousClock.now + interval
        var shown: Terminal.Size?
        while !interruption.hasCome, .now < end {
            let size = Terminal.size
            if !isJSON, size != shown, let snapshot = screen.snapshot {
                Terminal.show(
                    TopTable(snapshot: snapshot).lines(within: size, problem: screen.problem)
                )
                shown = size
            }
            try await loop.sleep(for: .milliseconds(100))
        }
    }
}
