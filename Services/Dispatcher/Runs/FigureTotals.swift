import PushCore
import PushStorage

/// Sums outcomes by the minute and by the hour, as they are written to `push_figures`. Pure: no
/// clock, no I/O.
///
/// Rows are totals of this process so far, so that a row may be written again. An outcome counts in
/// the minute in which it is recorded, and minutes never go back: a minute that has been written for
/// the last time does not begin a second time.
final class FigureTotals {
    /// The total of a key so far, and how much of it was written.
    private struct Total {
        var counts = OutcomeCounts()
        var written = 0

        var isChanged: Bool { counts.total != written }
    }

    /// A total of the present minute. A class, so that most outcomes need no look-up.
    private final class Minute {
        let key: FigureKey
        var total = Total()

        init(_ key: FigureKey) { self.key = key }
    }

    private struct RowKey: Hashable {
        let key: FigureKey
        let span: PushFigure.Span
        let at: Instant

        init(_ row: PushFigure) { (key, span, at) = (row.key, row.span, row.at) }
    }

    /// The most rows of ended minutes that wait. Rows are counted only after a write to Postgres,
    /// so there are few unless only the figures cannot be written.
    private static let mostWaiting = 100_000

    private(set) var minute: Instant
    private var minutes: [FigureKey: Minute] = [:]
    /// The minutes that were counted last, by provider: of all pushes, and of one push.
    private var last: [(all: Minute?, own: Minute?)] = Platform.allCases.map { _ in (nil, nil) }
    /// The ended minutes of the present hour, without those of single pushes.
    private var hours: [FigureKey: Total] = [:]
    /// The rows of ended minutes and hours that were not written.
    private var ended: [RowKey: PushFigure] = [:]

    init(at now: Instant) { minute = PushFigure.Span.minute.start(of: now) }

    private var hour: Instant { PushFigure.Span.hour.start(of: minute) }

    // MARK: Counting

    /// Counts an outcome.
    ///
    /// - Parameters:
    ///   - outcome: The outcome.
    ///   - app: The app.
    ///   - provider: The provider.
    ///   - pushID: The push, if it has figures of its own.
    ///   - latency: The milliseconds since the delivery was due; `nil` if they do not count.
    ///   - time: The time. If it is before the present minute, the present minute counts.
    func add(
        _ outcome: Outcome,
        app: String,
        provider: Platform,
        pushID: String?,
        latency: Int64?,
        at time: Instant
    ) {
        advance(to: time)
        let place = provider.ordinal
        let all = minute(last[place].all, app, nil, provider)
        last[place].all = all
        all.total.counts[outcome] += 1
        if let latency { all.total.counts.latency.add(milliseconds: latency) }
        guard let pushID else { return }
        let own = minute(last[place].own, app, pushID, provider)
        last[place].own = own
        own.total.counts[outcome] += 1
    }

    private func minute(
        _ last: Minute?,
        _ app: String,
        _ pushID: String?,
        _ provider: Platform
    ) -> Minute {
        if let last, last.key.pushID == pushID, last.key.app == app { return last }
        let key = FigureKey(app: app, pushID: pushID, provider: provider)
        if let known = minutes[key] { return known }
        let new = Minute(key)
        minutes[key] = new
        return new
    }

    /// Ends the present minute if the time is after it.
    func advance(to time: Instant) {
        guard time.milliseconds >= minute.milliseconds + 60_000 else { return }
        let (before, hourBefore) = (minute, hour)
        minute = PushFigure.Span.minute.start(of: time)
        if ended.count > Self.mostWaiting { ended = [:] }
        for (key, ending) in minutes {
            if ending.total.isChanged {
                end(PushFigure(key: key, span: .minute, at: before, counts: ending.total.counts))
            }
            if key.pushID == nil { hours[key, default: Total()].counts.add(ending.total.counts) }
        }
        minutes = [:]
        for place in last.indices { last[place] = (nil, nil) }
        guard hour != hourBefore else { return }
        for (key, total) in hours where total.isChanged {
            end(PushFigure(key: key, span: .hour, at: hourBefore, counts: total.counts))
        }
        hours = [:]
    }

    private func end(_ row: PushFigure) { ended[RowKey(row)] = row }

    // MARK: Writing

    /// Returns the rows that have changed since the last call.
    func take() -> [PushFigure] {
        var rows = Array(ended.values)
        ended = [:]
        var present = hours
        for (key, minute) in minutes {
            if key.pushID == nil { present[key, default: Total()].counts.add(minute.total.counts) }
            guard minute.total.isChanged else { continue }
            minute.total.written = minute.total.counts.total
            rows.append(
                PushFigure(key: key, span: .minute, at: self.minute, counts: minute.total.counts)
            )
        }
        for (key, total) in present where total.isChanged {
            hours[key, default: Total()].written = total.counts.total
            rows.append(PushFigure(key: key, span: .hour, at: hour, counts: total.counts))
        }
        return rows
    }

    /// Takes back rows that were not written. Rows that were counted further are newer.
    func putBack(_ rows: [PushFigure]) {
        for row in rows {
            switch row.span {
            case .minute where row.at == minute: minutes[row.key]?.total.written = 0
            case .hour where row.at == hour: hours[row.key]?.written = 0
            case .minute, .hour:
                if ended[RowKey(row)] == nil { end(row) }
            }
        }
    }
}
