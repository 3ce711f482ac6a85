package import JSON
package import PushCore

/// The state that a running service reports about itself, for operators.
package struct ServiceState: Sendable, Equatable {
    /// A part of the service, with a sentence: why it is not ready, or what warns of it.
    package struct Reason: Sendable, Equatable {
        package var part: String
        package var reason: String

        package init(part: String, reason: String) {
            self.part = part
            self.reason = reason
        }
    }

    /// The records that wait in the partitions that the service reads of one topic.
    package struct Lag: Sendable, Equatable {
        package var group: String
        package var topic: String
        package var records: Int

        package init(group: String, topic: String, records: Int) {
            self.group = group
            self.topic = topic
            self.records = records
        }
    }

    /// The deliveries in flight, and the most that may be.
    package struct Slots: Sendable, Equatable {
        package var inUse: Int
        package var total: Int

        package init(inUse: Int, total: Int) {
            self.inUse = inUse
            self.total = total
        }
    }

    /// Empty: the service is ready.
    package var notReady: [Reason] = []
    package var warnings: [Reason] = []
    package var breakers: [OpenBreaker] = []
    package var lags: [Lag] = []
    /// `nil` for a service that sends nothing.
    package var slots: Slots?

    package init() {}

    package var isReady: Bool { notReady.isEmpty }

    /// The most breakers in one report, some 100 bytes each.
    package static let maximumBreakers = 500
}

/// An open circuit breaker of a dispatcher: it sends an app's deliveries to this provider only as
/// probes.
package struct OpenBreaker: Sendable, Equatable {
    package var app: String
    package var provider: Platform
    /// Whether it is of APNs' sandbox.
    package var isSandbox: Bool
    /// The first of the failures in a row.
    package var since: Instant
    /// The time of the next probe. Nothing waits for the provider if it is in the past.
    package var retryAt: Instant

    package init(
        app: String,
        provider: Platform,
        isSandbox: Bool = false,
        since: Instant,
        retryAt: Instant
    ) {
        self.app = app
        self.provider = provider
        self.isSandbox = isSandbox
        self.since = since
        self.retryAt = retryAt
    }
}

// MARK: The form in the table

extension ServiceState {
    /// The form of `service_instances.state`; empty parts are omitted.
    package var json: JSONObject {
        var object: JSONObject = [:]
        func add(_ name: String, _ items: [JSONValue]) {
            if !items.isEmpty { object[name] = .array(items) }
        }
        add("notReady", notReady.map(\.json))
        add("warnings", warnings.map(\.json))
        add("breakers", breakers.prefix(Self.maximumBreakers).map(\.json))
        add("lag", lags.map(\.json))
        if let slots {
            object["slots"] = ["inUse": JSONValue(slots.inUse), "total": JSONValue(slots.total)]
        }
        return object
    }

    /// Reads a stored state. A later version may have written it: unknown members are ignored.
    package init(_ json: JSONValue) {
        notReady = Self.items(json["notReady"], Reason.init)
        warnings = Self.items(json["warnings"], Reason.init)
        breakers = Self.items(json["breakers"], OpenBreaker.init)
        lags = Self.items(json["lag"], Lag.init)
        if let inUse = json["slots"]?["inUse"]?.integer,
            let total = json["slots"]?["total"]?.integer
        {
            slots = Slots(inUse: inUse, total: total)
        }
    }

    private static func items<Item>(
        _ json: JSONValue?,
        _ make: (JSONValue) -> Item?
    ) -> [Item] { (json?.array ?? []).compactMap(make) }
}

extension ServiceState.Reason {
    package var json: JSONValue { ["part": .string(part), "reason": .string(reason)] }

    fileprivate init?(_ json: JSONValue) {
        guard let part = json["part"]?.string, let reason = json["reason"]?.string else {
            return nil
        }
        self.init(part: part, reason: reason)
    }
}

extension ServiceState.Lag {
    package var json: JSONValue {
        [
            "group": .string(group), "topic": .string(topic), "records": JSONValue(records),
        ]
    }

    fileprivate init?(_ json: JSONValue) {
        guard let group = json["group"]?.string, let topic = json["topic"]?.string,
            let records = json["records"]?.integer
        else { return nil }
        self.init(group: group, topic: topic, records: records)
    }
}

extension OpenBreaker {
    package var json: JSONValue {
        var object: JSONObject = [
            "app": .string(app), "provider": .string(provider.rawValue),
            "since": .string(since.iso8601), "retryAt": .string(retryAt.iso8601),
        ]
        if isSandbox { object["sandbox"] = .bool(true) }
        return .object(object)
    }

    init?(_ json: JSONValue) {
        guard let app = json["app"]?.string,
            let provider = json["provider"]?.string.flatMap(Platform.init(rawValue:)),
            let since = json["since"]?.string.flatMap(Instant.init(iso8601:)),
            let retryAt = json["retryAt"]?.string.flatMap(Instant.init(iso8601:))
        else { return nil }
        self.init(
            app: app,
            provider: provider,
            isSandbox: json["sandbox"] == .bool(true),
            since: since,
            retryAt: retryAt
        )
    }
}
