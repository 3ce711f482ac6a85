import Cryptography
import EventLoop
import Glibc
import PushCore
import StorageAdmin

/// Seals all values again under the first of `CARILLON_MASTER_KEYS` while services run. Their concurrent
/// writes are not overwritten. No progress is stored, as each value names its key: after an interruption the
/// next run continues with the rest.
///
/// Confined to the loop that it is given.
final class KeyRotation {
    enum End {
        case finished
        /// Interrupted by Ctrl-C, between two batches.
        case interrupted
    }

    /// The number of passes: services with the old list of keys may write meanwhile.
    private static let passes = 3

    private let keys: KeyRing
    private let sealed: SealedStore
    private let loop: EventLoop
    private let interruption = Interruption()
    private var progress = Progress()

    private(set) var rotated = 0
    /// The number of unreadable values in the last pass.
    private(set) var unreadable = 0

    init(_ keys: KeyRing, _ sealed: SealedStore, on loop: EventLoop) {
        (self.keys, self.sealed, self.loop) = (keys, sealed, loop)
    }

    func run() async throws -> End {
        let signals = interruption.watch(on: loop)
        defer {
            for signal in signals { signal.close() }
            progress.end()
        }
        for _ in 0..<Self.passes {
            unreadable = 0
            let waiting = try await rotateFew() + rotateSecure()
            if interruption.hasCome { return .interrupted }
            if waiting == unreadable { break }
        }
        return .finished
    }

    /// Seals keys of apps, and credentials.
    ///
    /// - Returns: The number of values under another key.
    private func rotateFew() async throws -> Int {
        let waiting = try await sealed.all().filter {
            KeyRing.keyID(of: $0.sealed) != keys.primaryKeyID
        }
        for value in waiting where !interruption.hasCome {
            guard let resealed = try reseal(value) else { continue }
            if try await sealed.replace(value, by: resealed) { rotated += 1 }
        }
        return waiting.count
    }

    /// Seals the contents of secure payloads, in pages.
    private func rotateSecure() async throws -> Int {
        let head = keys.primaryHead
        let behind = try await sealed.secureHeads().filter { $0.head != head }
        guard !behind.isEmpty else { return 0 }
        progress.begin(of: behind.reduce(0) { $0 + $1.count })
        var (waiting, last) = (0, String?.none)
        repeat {
            let page = try await sealed.securePage(notUnder: head, after: last)
            waiting += page.values.count
            var replacements: [(value: SealedValue, sealed: [UInt8])] = []
            for value in page.values {
                if let resealed = try reseal(value) { replacements.append((value, resealed)) }
            }
            rotated += try await sealed.replace(replacements)
            progress.show(waiting)
            last = page.last
        } while last != nil && !interruption.hasCome
        return waiting
    }

    /// - Returns: `nil` if no key of the list opens the value, which is reported.
    private func reseal(_ value: SealedValue) throws -> [UInt8]? {
        guard let opened = try? keys.open(value.sealed, context: value.context) else {
            unreadable += 1
            // Only a few are reported: if a key is missing, all values may be unreadable.
            if unreadable <= 20 {
                progress.end()
                Terminal.printError("\(value.name) cannot be opened with CARILLON_MASTER_KEYS")
            }
            return nil
        }
        return try keys.seal(opened, context: value.context)
    }
}

/// The progress: one line that changes on a terminal, else a line every few seconds. It is written to
/// the standard error, so that the output of `--json` stays valid.
private struct Progress {
    private static let pause = Duration.seconds(5)
    private static let terminalPause = Duration.milliseconds(250)

    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var total = 0
    private var meter = ProgressMeter()
    private var shownAt = ContinuousClock.now
    private var isOpen = false

    mutating func begin(of total: Int) {
        self.total = total
        meter = ProgressMeter()
        meter.take(done: 0, at: .now())
        shownAt = .now
    }

    mutating func show(_ done: Int) {
        let now = ContinuousClock.now
        guard now - shownAt >= (isTerminal ? Self.terminalPause : Self.pause) else { return }
        shownAt = now
        meter.take(done: done, at: .now())
        let line = Self.line(done: done, of: total, meter)
        if isTerminal {
            Terminal.printError(passing: line)
            isOpen = true
        } else {
            Terminal.printError(line)
        }
    }

    /// Ends the changing line.
    mutating func end() {
        if isOpen { Terminal.printError("") }
        isOpen = false
    }

    private static func line(done: Int, of total: Int, _ meter: ProgressMeter) -> String {
        var parts = ["secure payloads  \(ProgressMeter.share(done, of: total))"]
        if let rate = meter.rate { parts.append("\(Int(rate.rounded()))/s") }
        if let left = meter.secondsLeft(pending: total - done), left > 0 {
            parts.append("\(ProgressMeter.text(seconds: left)) left")
        }
        return parts.joined(separator: "  ")
    }
}
