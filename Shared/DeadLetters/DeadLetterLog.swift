package import EventLoop
package import Kafka
package import Observability
package import PushCore
package import PushEvents

/// The latest dead letters of all apps, read from Kafka when somebody looks at them.
///
/// One read runs at a time; all who ask meanwhile, and a few seconds after, share it. Between reads
/// there is no connection to Kafka, and nothing is kept. Records that no single app owns are dropped
/// at once.
package actor DeadLetterLog {
    private nonisolated let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// How many offsets of each partition are read.
    package static let lastOffsets: Int64 = 200
    /// The limit of what one read keeps, which the partitions share.
    static let maximumBytes = 32 << 20
    static let deadline = Duration.seconds(4)
    /// How long a read is shared after its end.
    static let freshFor = Duration.seconds(3)

    /// One read.
    package struct Snapshot: Sendable {
        /// Each app's dead letters, the latest first.
        let byApp: [String: [StoredDeadLetter]]
        /// Whether there are older ones that were not read.
        package let hasOlder: Bool
        /// The number of records of any app that were left out, as they are too large to be kept.
        package let leftOut: Int
        /// When it was read.
        package let at: Instant

        /// Returns an app's dead letters, the latest first.
        package func letters(of app: String) -> [StoredDeadLetter] { byApp[app] ?? [] }
    }

    /// Kafka did not answer within the deadline.
    private struct TooLate: Error, CustomStringConvertible {
        let description = "Kafka does not answer in time"
    }

    private let kafka: KafkaConfiguration
    private let topics: KafkaTopics
    private let log: Log
    private var flight: SingleFlight<Snapshot>?
    private(set) var reads = 0

    package init(
        _ kafka: KafkaConfiguration,
        _ topics: KafkaTopics,
        on loop: EventLoop,
        log: Log = .disabled
    ) {
        self.kafka = kafka
        self.topics = topics
        self.loop = loop
        self.log = log
    }

    /// Returns the latest dead letters.
    ///
    /// - Throws: `KafkaError`, `StoredDeadLetter.MissingTopic`, or an error after the deadline.
    package func snapshot() async throws -> Snapshot {
        if let flight { return try await flight.wait() }
        // Two calls follow each other, and each has its own deadline.
        let flight = SingleFlight<Snapshot>(
            on: loop,
            atMost: Self.deadline * 2 + .seconds(1),
            orElse: TooLate()
        )
        self.flight = flight
        reads += 1
        flight.start {
            try await self.read()
        } whenOver: { [loop] result in
            // A failure is not shared with those who come after it.
            guard case .success = result else { return self.end() }
            _ = loop.schedule(after: Self.freshFor) { self.end() }
        }
        return try await flight.wait()
    }

    private nonisolated func end() { assumeIsolated { $0.flight = nil } }

    private func read() async throws -> Snapshot {
        let reading = try await StoredDeadLetter.read(
            StoredDeadLetter.Span(
                last: Self.lastOffsets,
                limit: Int(Self.lastOffsets),
                maximumBytes: Self.maximumBytes,
                timeout: Self.deadline
            ),
            kafka,
            topics,
            on: loop,
            log: log
        ) { _ in true }
        let topics = topics
        // Values are parsed for the apps that they name.
        return try await loop.blocking {
            var byApp: [String: [StoredDeadLetter]] = [:]
            for letter in reading.records.lazy.map(StoredDeadLetter.init(record:)) {
                guard let owner = letter.owner(topics) else { continue }
                byApp[owner, default: []].append(letter)
            }
            return Snapshot(
                byApp: byApp.mapValues { $0.sorted { $1.isBefore($0) } },
                hasOlder: reading.hasOlder,
                leftOut: reading.leftOut,
                at: .now()
            )
        }
    }
}

extension StoredDeadLetter {
    /// The order of lists: by time, then by place.
    package func isBefore(_ other: StoredDeadLetter) -> Bool {
        let (one, two) = (at ?? .earliest, other.at ?? .earliest)
        return (one, id.partition, id.offset) < (two, other.id.partition, other.id.offset)
    }
}
