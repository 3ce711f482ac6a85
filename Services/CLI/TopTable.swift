import PushCore
import PushStorage
import Storage

/// The lines of `top`, most important first. Pure.
struct TopTable {
    let snapshot: TopSnapshot

    /// Fits the lines into a terminal.
    ///
    /// - Parameters:
    ///   - size: The terminal's size.
    ///   - problem: Why the snapshot is an old one; `nil` if it is not.
    /// - Returns: The lines: none is wider than the terminal, and there are not more than it has rows.
    func lines(within size: Terminal.Size, problem: String? = nil) -> [String] {
        let all = (problem.map { ["cannot be read now: \($0)"] } ?? []) + lines
        let shown =
            all.count <= size.rows
            ? all
            : all.prefix(max(0, size.rows - 1)) + ["… \(all.count - size.rows + 1) more lines"]
        return shown.map { Self.cut($0, size.columns) }
    }

    /// Cuts a line at a width in characters.
    static func cut(_ line: String, _ width: Int) -> String {
        let line = PrintableText.line(line)
        return line.count <= width ? line : line.prefix(max(0, width - 1)) + (width > 0 ? "…" : "")
    }

    var lines: [String] {
        let parts = [[head], problems, rates, services, lag].filter { !$0.isEmpty }
        return Array(parts.joined(separator: [""]))
    }

    // MARK: Parts

    private var head: String {
        let ready = snapshot.fleet.seen.count { $0.state.isReady }
        let waiting = "\(snapshot.outbox.records)\(snapshot.outbox.isMore ? "+" : "")"
        let oldest =
            snapshot.outbox.records > 0 ? ", oldest \(Self.span(snapshot.outbox.oldest))" : ""
        return "\(Self.clock(snapshot.at)) UTC   \(ready) of \(snapshot.fleet.shown.count) ready"
            + "   outbox \(waiting)\(oldest)"
            + (snapshot.app.map { "   app \($0)" } ?? "")
    }

    private var problems: [String] {
        snapshot.fleet.missing.map {
            "NOT SEEN   \($0.service) \($0.host) for \(Self.span($0.silence))"
        }
            + snapshot.fleet.seen.flatMap { instance in
                instance.state.notReady.map {
                    "NOT READY  \(instance.service) \(instance.host): \($0.part): \($0.reason)"
                }
            }
            + snapshot.breakers.map { breaker in
                let left = breaker.retryAt.milliseconds - snapshot.at.milliseconds
                let next =
                    left > 0 ? "in \(Self.span(.milliseconds(left)))" : "with the next delivery"
                return "BREAKER    \(breaker.app) \(breaker.provider.rawValue)"
                    + "\(breaker.isSandbox ? " sandbox" : "") fails since"
                    + " \(Self.clock(breaker.since)), probed \(next)"
            }
    }

    private var rates: [String] {
        let seconds = Int(snapshot.rates.seconds.rounded())
        guard !snapshot.lines.isEmpty else { return ["no outcome in the last \(seconds) s"] }
        let listing = Listing(
            snapshot.lines,
            columns: [
                .cell("APP", \.app), .cell("PROVIDER", \.provider.rawValue),
                .cell("DELIVERED/s") { rate($0.counts.delivered) },
                .cell("FAILED/s") { rate($0.counts.failed) },
                .cell("EXPIRED/s") { rate($0.counts.expired) },
                .cell("SUPPRESSED/s") { rate($0.counts.suppressed) },
                .cell("95%") { line in
                    line.counts.latency.percentile(0.95)
                        .map { Self.span(.milliseconds(Int64($0.rounded()))) } ?? "-"
                },
            ]
        )
        return Self.rows(listing.table())
    }

    private func rate(_ count: Int) -> String {
        count == 0 ? "0" : "\(snapshot.perSecond(count))"
    }

    private var services: [String] {
        let listing = Listing(
            snapshot.fleet.shown,
            columns: [
                .cell("SERVICE", \.service), .cell("HOST", \.host), .cell("VERSION", \.version),
                .cell("READY") { $0.isSeen ? ($0.state.isReady ? "yes" : "no") : "-" },
                .cell("SEEN") { Self.span($0.silence) + " ago" },
                .cell("IN FLIGHT") { $0.state.slots.map { "\($0.inUse)/\($0.total)" } ?? "" },
                .cell("WARNINGS") { instance in
                    instance.state.warnings.map { "\($0.part): \($0.reason)" }
                        .joined(separator: "; ")
                },
            ]
        )
        return snapshot.fleet.shown.isEmpty ? ["no service runs"] : Self.rows(listing.table())
    }

    private var lag: [String] {
        let lags = snapshot.fleet.lags
        guard !lags.isEmpty else { return [] }
        let listing = Listing(
            lags,
            columns: [
                .cell("GROUP", \.group), .cell("TOPIC", \.topic), .cell("LAG") { "\($0.records)" },
            ]
        )
        return Self.rows(listing.table())
    }

    // MARK: Forms

    private static func rows(_ table: String) -> [String] {
        table.split(separator: "\n").map { line in
            var line = line
            while line.last == " " { line.removeLast() }
            return String(line)
        }
    }

    private static func clock(_ time: Instant) -> String {
        String(time.iso8601.dropFirst(11).prefix(8))
    }

    /// `450 ms`, `1.9 s`, `42 s`, `12 min`, `3 h`.
    static func span(_ duration: Duration) -> String {
        let milliseconds = max(0, Int64(duration / .milliseconds(1)))
        switch milliseconds {
        case ..<1000: return "\(milliseconds) ms"
        case ..<10_000: return "\(Double(milliseconds / 100) / 10) s"
        case ..<120_000: return "\(milliseconds / 1000) s"
        case ..<7_200_000: return "\(milliseconds / 60_000) min"
        default: return "\(milliseconds / 3_600_000) h"
        }
    }
}
