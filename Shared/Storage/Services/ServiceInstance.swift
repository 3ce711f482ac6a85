package import JSON
package import PushCore

/// A process of a service, as it last reported itself. All times are Postgres'.
package struct ServiceInstance: Sendable, Equatable {
    /// A UUID, a new one for each process.
    package var id: String
    /// As in logs: `dispatcher`.
    package var service: String
    /// The host's name and the process' id: `dispatcher-0:17`.
    package var host: String
    package var version: String
    package var startedAt: Instant
    package var seenAt: Instant
    /// The time since its last report.
    package var silence: Duration = .zero
    package var state: ServiceState

    package init(
        id: String,
        service: String,
        host: String,
        version: String,
        startedAt: Instant = .earliest,
        seenAt: Instant = .earliest,
        state: ServiceState
    ) {
        self.id = id
        self.service = service
        self.host = host
        self.version = version
        self.startedAt = startedAt
        self.seenAt = seenAt
        self.state = state
    }

    /// How often a process reports itself if nothing changes.
    package static let interval = Duration.seconds(10)
    /// The silence from which on a process counts as not seen: three reports.
    package static let silentAfter = Duration.seconds(30)

    package var isSeen: Bool { silence < Self.silentAfter }

    package var json: JSONObject {
        var object: JSONObject = [
            "service": .string(service), "host": .string(host), "version": .string(version),
            "ready": .bool(isSeen && state.isReady), "seen": .bool(isSeen),
            "startedAt": .string(startedAt.iso8601), "seenAt": .string(seenAt.iso8601),
        ]
        for (name, value) in state.json { object[name] = value }
        return object
    }
}

/// The processes of all services.
package struct ServiceFleet: Sendable, Equatable {
    /// The processes that were seen within a day and did not stop by themselves, by service and host.
    package let instances: [ServiceInstance]
    /// The time of the reading.
    package let asOf: Instant

    package init(_ instances: [ServiceInstance], asOf: Instant) {
        self.instances = instances
        self.asOf = asOf
    }

    package var seen: [ServiceInstance] { instances.filter(\.isSeen) }

    /// Processes that ended without a word, or cannot reach Postgres. One in whose place another
    /// process of its service has started since is not missed.
    package var missing: [ServiceInstance] {
        instances.filter { lost in
            !lost.isSeen
                && !instances.contains {
                    $0.service == lost.service && $0.isSeen && $0.startedAt > lost.seenAt
                }
        }
    }

    /// The processes to show: those that are seen or missed.
    package var shown: [ServiceInstance] {
        let missing = Set(missing.map(\.id))
        return instances.filter { $0.isSeen || missing.contains($0.id) }
    }

    /// The open breakers, of one app or of all, the longest open first. Dispatchers have their own;
    /// those of one provider are one, with the earliest times.
    package func breakers(of app: String? = nil) -> [OpenBreaker] {
        var found: [OpenBreaker] = []
        for breaker in seen.flatMap(\.state.breakers) where app == nil || breaker.app == app {
            let known = found.firstIndex {
                $0.app == breaker.app && $0.provider == breaker.provider
                    && $0.isSandbox == breaker.isSandbox
            }
            guard let known else {
                found.append(breaker)
                continue
            }
            found[known].since = min(found[known].since, breaker.since)
            found[known].retryAt = min(found[known].retryAt, breaker.retryAt)
        }
        return found.sorted { ($0.since, $0.app) < ($1.since, $1.app) }
    }

    /// The lag by group and topic, over all processes.
    package var lags: [ServiceState.Lag] {
        var found: [ServiceState.Lag] = []
        for lag in seen.flatMap(\.state.lags) {
            if let known = found.firstIndex(where: {
                $0.group == lag.group && $0.topic == lag.topic
            }) {
                found[known].records += lag.records
            } else {
                found.append(lag)
            }
        }
        return found.sorted { ($0.group, $0.topic) < ($1.group, $1.topic) }
    }
}
