import JSON
import PushCore
import PushStorage
import Storage

/// The state of the installation at one time, for `top`.
struct TopSnapshot: Sendable {
    let fleet: ServiceFleet
    let outbox: OutboxStore.Depth
    let rates: PushRates
    /// The app whose rates and breakers are shown; `nil`: all.
    var app: String?

    /// The outcomes of the last minute or two count for the rates.
    private static let rateMilliseconds: Int64 = 60_000

    static func read(_ database: PushDatabase, app: String?) async throws -> TopSnapshot {
        let fleet = try await database.instances.fleet()
        let outbox = try await database.outbox.depth()
        let since = fleet.asOf.adding(milliseconds: -rateMilliseconds)
        let rates = try await database.figures.rates(since: since)
        return TopSnapshot(fleet: fleet, outbox: outbox, rates: rates, app: app)
    }

    var at: Instant { fleet.asOf }

    var breakers: [OpenBreaker] { fleet.breakers(of: app) }

    var lines: [PushRates.Line] { rates.lines.filter { app == nil || $0.app == app } }

    var json: JSONObject {
        let rates = lines.map { line -> JSONValue in
            var object: JSONObject = [
                "app": .string(line.app), "provider": .string(line.provider.rawValue),
            ]
            for (name, count) in line.counts.named {
                object[name + "PerSecond"] = .double(perSecond(count))
            }
            object["latency95Milliseconds"] = line.counts.latency.percentile(0.95)
                .map { .double($0.rounded()) }
            return .object(object)
        }
        return [
            "at": .string(at.iso8601),
            "services": .array(fleet.shown.map { .object($0.json) }),
            "breakers": .array(breakers.map(\.json)),
            "lag": .array(fleet.lags.map(\.json)),
            "outbox": [
                "records": JSONValue(outbox.records), "isMore": .bool(outbox.isMore),
                "oldestMilliseconds": JSONValue(Int(outbox.oldest / .milliseconds(1))),
            ],
            "rateSeconds": .double(self.rates.seconds.rounded()),
            "rates": .array(rates),
        ]
    }

    /// Returns a count of the rates' time by the second, with one decimal.
    func perSecond(_ count: Int) -> Double {
        (Double(count) / rates.seconds * 10).rounded() / 10
    }
}

extension OutcomeCounts {
    /// The counts by the outcomes' names in the API.
    var named: [(name: String, count: Int)] {
        [
            ("delivered", delivered), ("failed", failed), ("expired", expired),
            ("suppressed", suppressed), ("inDoubt", inDoubt),
        ]
    }
}
