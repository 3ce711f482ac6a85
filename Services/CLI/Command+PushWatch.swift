import EventLoop
import Glibc
import JSON
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Shows the progress of a push until it ends, for `push show --watch`. On a terminal one line is
/// rewritten. Elsewhere a line is printed after a change, at most one a second. With `--json` each
/// line is an object.
final class PushWatch: Sendable {
    static let interrupted = Interruption.exitCode

    private enum Style {
        case terminal, lines, json
    }

    private let loop: EventLoop
    private let database: PushDatabase
    private let style: Style

    init(_ database: PushDatabase, on loop: EventLoop, isJSON: Bool) {
        self.database = database
        self.loop = loop
        style = isJSON ? .json : isatty(STDOUT_FILENO) == 1 ? .terminal : .lines
    }

    /// - Returns: The push when it has ended; `nil` if Ctrl-C came first.
    func run(_ push: StoredPush) async throws -> StoredPush? {
        let interruption = Interruption()
        let signals = interruption.watch(on: loop)
        do {
            let last = try await follow(push, until: interruption)
            stop(signals)
            return last
        } catch {
            stop(signals)
            throw error
        }
    }

    private func stop(_ signals: [SignalWatch]) {
        if style == .terminal { Terminal.write("\n") }
        for signal in signals { signal.close() }
    }

    private func follow(
        _ push: StoredPush,
        until interruption: Interruption
    ) async throws -> StoredPush? {
        var push = push
        var meter = ProgressMeter()
        var shown: StoredPush?
        var shownAt = ContinuousClock.now - .seconds(1)
        while true {
            let now = Instant.now()
            meter.take(done: push.ledger.targeted - push.ledger.pending, at: now)
            let isNews = shown != push && ContinuousClock.now - shownAt >= .seconds(1)
            if style == .terminal || isNews || push.status.isFinal && shown != push {
                show(push, meter, now)
                (shown, shownAt) = (push, .now)
            }
            if push.status.isFinal { return push }
            try await loop.sleep(for: .milliseconds(250))
            if interruption.hasCome { return nil }
            guard let next = try await database.pushes.find(push.id) else { return push }
            push = next
        }
    }

    private func show(_ push: StoredPush, _ meter: ProgressMeter, _ now: Instant) {
        switch style {
        case .terminal: Terminal.write(passing: Self.line(push, meter, now))
        case .lines: Terminal.printLine(Self.line(push, meter, now))
        case .json: Terminal.printLine(.object(Self.object(push, meter, now)))
        }
    }

    static func line(_ push: StoredPush, _ meter: ProgressMeter, _ now: Instant) -> String {
        let ledger = push.ledger
        if push.isWaiting, let time = push.releaseAt {
            let left = Int((time.milliseconds - now.milliseconds + 999) / 1000)
            let wait = left > 0 ? "in \(ProgressMeter.text(seconds: left))" : "now"
            return "scheduled for \(time.iso8601), \(wait)"
        }
        let share = ProgressMeter.share(ledger.targeted - ledger.pending, of: ledger.targeted)
        var parts = ["\(push.status.rawValue)  \(share)"]
        if let rate = meter.rate { parts.append("\(Int(rate.rounded()))/s") }
        if !push.status.isFinal, let left = meter.secondsLeft(pending: ledger.pending) {
            parts.append("\(ProgressMeter.text(seconds: left)) left")
        }
        for (name, count) in [
            ("failed", ledger.failed), ("expired", ledger.expired),
            ("suppressed", ledger.suppressed), ("in doubt", ledger.inDoubt),
        ] where count > 0 {
            parts.append("\(name) \(count)")
        }
        return parts.joined(separator: "  ")
    }

    static func object(_ push: StoredPush, _ meter: ProgressMeter, _ now: Instant) -> JSONObject {
        let ledger = push.ledger
        var object: JSONObject = [
            "at": .string(now.iso8601), "pushId": .string(push.id),
            "status": .string(push.status.rawValue),
            "done": JSONValue(ledger.targeted - ledger.pending),
        ]
        for (name, value) in Command.shownLedger(ledger) { object[name] = value }
        object["ratePerSecond"] = meter.rate.map { .double($0) }
        if !push.status.isFinal {
            object["secondsLeft"] = meter.secondsLeft(pending: ledger.pending).map {
                JSONValue($0)
            }
        }
        if push.isWaiting { object["releaseAt"] = push.releaseAt.map { .string($0.iso8601) } }
        return object
    }
}

extension StoredPush {
    /// Whether it waits for its `push_time`.
    var isWaiting: Bool {
        switch status {
        case .scheduled: true
        case .queued: releaseAt != nil
        case .planning, .sending, .done, .cancelled, .failed: false
        }
    }
}

/// Notes the first Ctrl-C or SIGTERM; a second signal ends the process at once. Confined to the
/// loop.
final class Interruption: @unchecked Sendable {
    /// The exit code that the shell expects after Ctrl-C.
    static let exitCode: Int32 = 130

    private(set) var hasCome = false

    func watch(on loop: EventLoop) -> [SignalWatch] {
        [SIGINT, SIGTERM].map { number in
            loop.onSignal(number) {
                if self.hasCome { _exit(Self.exitCode) }
                self.hasCome = true
            }
        }
    }
}
