import ConnectionStorage
import IngestStorage
import JSON
import PushCore
import PushEvents
import Storage
import StorageAdmin
import Support
import Testing

@testable import PushStorage

@Suite(
    "Counts of devices' reports by the minute",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ReceiptFigureTests {
    private static let app = StorageFixture.app
    private static let broadcast = "0b5d4b1c-9d7e-4c55-8a43-1d8f6f6f2f10"
    private static let single = "0b5d4b1c-9d7e-4c55-8a43-1d8f6f6f2f11"
    private static let foreign = "0b5d4b1c-9d7e-4c55-8a43-1d8f6f6f2f12"

    /// Stores a push to many devices, one to a single device, and one to many of another app.
    private static func makePushes(in fixture: StorageFixture) async throws {
        try await fixture.createApp("other")
        _ = try await fixture.server.query(
            """
            insert into pushes (id, app, event_source, event_id, request, status, lane, targeted)
            values ('\(broadcast)', '\(app)', 'e2e', 'broadcast', '{}', 'done', 1, 3),
                ('\(single)', '\(app)', 'e2e', 'single', '{}', 'done', 0, 1),
                ('\(foreign)', 'other', 'e2e', 'foreign', '{}', 'done', 1, 9)
            returning 1
            """
        )
    }

    /// Returns the sums of reports: all, those of each push, and all by the hour.
    private static func sums(_ fixture: StorageFixture) async throws -> [String] {
        try await fixture.server.query(
            """
            select minutes, right(push_id::text, 2), sum(received), sum(opened) from push_figures
            where app = '\(app)' and provider = '' group by 1, 2 order by 1, 2
            """
        )
    }

    private static func reports(
        _ reports: [(ReceiptKind, target: String, installation: String?)],
        from first: Int,
        in database: PushDatabase
    ) async throws {
        let type = try await IngestStoreTests.declare("Report\(first)", in: database)
        let objects = reports.enumerated().map { place, report in
            IngestStoreTests.object(
                type,
                first + place,
                receipt: SinkReceipt(
                    report.0,
                    of: report.target,
                    installation: report.installation
                )
            )
        }
        for _ in 0..<2 { _ = try await database.ingestSink.store(objects) }
    }

    @Test("Reports of ingest count once in their minute: for the app, and for a push to many")
    func ingest() async throws {
        try await StorageFixture.run { fixture in
            try await Self.makePushes(in: fixture)
            let database = fixture.database
            try await Self.reports(
                [
                    (.received, Self.broadcast, "one"), (.received, Self.broadcast, "two"),
                    (.received, "event/broadcast", "three"), (.opened, Self.broadcast, "one"),
                    (.received, Self.single, "one"), (.opened, Self.single, "one"),
                    // Nothing has these ids, and one is another app's.
                    (.opened, "no id", nil), (.opened, "event/nothing", nil),
                    (.opened, Self.foreign, "one"),
                ],
                from: 100,
                in: database
            )
            #expect(try await Self.sums(fixture) == ["1|00|4|5", "1|10|3|1", "60|00|4|5"])
            // The same devices report again, in other objects.
            try await Self.reports(
                [(.received, Self.broadcast, "one"), (.opened, Self.broadcast, "one")],
                from: 200,
                in: database
            )
            #expect(try await Self.sums(fixture) == ["1|00|4|5", "1|10|3|1", "60|00|4|5"])
            // Each report counts in the minute of its row.
            #expect(
                try await fixture.server.query(
                    """
                    select at, sum(received), sum(opened) from push_figures
                    where provider = '' and minutes = 1
                        and push_id = '\(PushFigureStore.allPushes)' group by 1 order by 1
                    """
                )
                    == fixture.server.query(
                        """
                        select date_trunc('minute', at), count(*) filter (where kind = 2),
                            count(*) filter (where kind = 1)
                        from push_receipts group by 1 order by 1
                        """
                    )
            )
        }
    }

    @Test("Acknowledgements, opens over a connection and opens that name no push count once")
    func others() async throws {
        try await StorageFixture.run { fixture in
            try await Self.makePushes(in: fixture)
            _ = try await fixture.install(["deviceType": "web", "installationId": "phone"])
            _ = try await fixture.server.query(
                "update installations set object_id = 'object' returning 1"
            )
            let connections = fixture.database.connections
            let key = DeviceKey(app: Self.app, installationID: "phone")
            try await connections.keep(
                [Self.broadcast, Self.single].enumerated().map { place, push in
                    NewMessage(
                        .init(
                            app: Self.app,
                            pushID: push,
                            eventID: "e\(place)",
                            body: Array(#"{"n":1}"#.utf8)
                        ),
                        for: key,
                        id: "00000000-0000-8000-8000-00000000000\(place)",
                        target: "object",
                        collapseID: nil,
                        expiresAt: nil
                    )
                },
                for: .seconds(3600)
            )
            let acks = try await connections.waiting(of: [key], limit: 10)
                .map { MessageAck($0) }
            #expect(acks.count == 2)
            for _ in 0..<2 {
                _ = try await connections.acknowledge(acks, topics: KafkaTopics(), at: .now())
            }
            #expect(try await Self.sums(fixture) == ["1|00|2|0", "1|10|1|0", "60|00|2|0"])
            let broadcast = acks.filter { $0.pushID == Self.broadcast }
            for _ in 0..<2 { try await connections.opened(broadcast) }
            #expect(try await Self.sums(fixture) == ["1|00|2|1", "1|10|1|1", "60|00|2|1"])
            // LeanCloud's old SDKs: the newest push that the installation has received.
            _ = try await fixture.server.query(
                """
                update push_receipts set at = at - interval '1 min'
                where target = '\(Self.broadcast)' returning 1
                """
            )
            for _ in 0..<2 {
                try await fixture.database.appOpens.add(
                    app: Self.app,
                    opens: 1,
                    pushOpens: 1,
                    installation: "object"
                )
            }
            #expect(try await Self.sums(fixture) == ["1|00|2|2", "1|10|1|1", "60|00|2|2"])
            let receipts = try await fixture.database.receipts.counts(of: [
                (app: Self.app, id: Self.broadcast, eventID: "broadcast")
            ])
            #expect(receipts[Self.broadcast] == ReceiptCounts(opened: 1, received: 1))
        }
    }

    @Test("Writers at the same time lose nothing, and do not deadlock")
    func concurrent() async throws {
        try await StorageFixture.run { fixture in
            try await Self.makePushes(in: fixture)
            let database = fixture.database
            let type = try await IngestStoreTests.declare("Report", in: database)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for writer in 0..<24 {
                    group.addTask {
                        let objects = (0..<50).map { number in
                            // Half of the reports are repeats of the writer before.
                            IngestStoreTests.object(
                                type,
                                writer * 50 + number,
                                receipt: SinkReceipt(
                                    .received,
                                    of: number % 2 == 0 ? Self.broadcast : Self.single,
                                    installation: "phone \(writer / 2 * 50 + number)"
                                )
                            )
                        }
                        _ = try await database.ingestSink.store(objects.shuffled())
                    }
                }
                try await group.waitForAll()
            }
            let sums = try await fixture.server.query(
                """
                select minutes, right(push_id::text, 2), sum(received) from push_figures
                where provider = '' group by 1, 2 order by 1, 2
                """
            )
            #expect(sums == ["1|00|600", "1|10|300", "60|00|600"])
        }
    }

    @Test("A chart reads reports beside outcomes; a push's have an extent of their own")
    func reading() async throws {
        try await StorageFixture.run { fixture in
            try await Self.makePushes(in: fixture)
            let figures = fixture.database.figures
            let now = Instant.now().start(ofMinutes: 1)
            func minute(_ number: Int) -> Instant { now.adding(.seconds(60 * Int64(number - 30))) }
            func outcome(_ push: String?, at time: Instant) -> PushFigure {
                var counts = OutcomeCounts()
                counts.delivered = 2
                return PushFigure(
                    key: FigureKey(app: Self.app, pushID: push, provider: .apns),
                    span: .minute,
                    at: time,
                    counts: counts
                )
            }
            try await figures.write(
                [outcome(nil, at: minute(0)), outcome(Self.broadcast, at: minute(0))],
                at: minute(0),
                replica: 7
            )
            for (number, received, opened) in [(0, 1, 0), (20, 1, 2)] {
                for push in [PushFigureStore.allPushes, Self.broadcast] {
                    _ = try await fixture.server.query(
                        """
                        insert into push_figures values ('\(Self.app)', '\(push)', 1,
                            '\(minute(number).iso8601)', '', 3, 0, 0, 0, 0, 0, '{}',
                            \(received), \(opened)) returning 1
                        """
                    )
                }
            }
            let buckets = FigureBuckets(last: 60, before: now)
            let series = try await figures.series(app: Self.app, buckets)
            #expect(series.receipts == ReceiptCounts(opened: 2, received: 2))
            #expect(series.total.total == 2)
            let place = try #require(buckets.index(of: minute(20)))
            #expect(series.points[place].receipts == ReceiptCounts(opened: 2, received: 1))
            #expect(!series.points[place].isCounted, "no dispatcher ran")
            // Rates are those of providers.
            let rates = try await figures.rates(since: minute(0))
            #expect(rates.lines.map(\.provider) == [.apns])

            let own = try await figures.series(ofPush: Self.broadcast, app: Self.app)
            #expect(own.outcomes?.points.map(\.counts.delivered) == [2])
            #expect(own.receipts?.points.count == 21)
            #expect(own.receipts?.receipts == ReceiptCounts(opened: 2, received: 2))
            let none = try await figures.series(ofPush: Self.single, app: Self.app)
            #expect(none == PushSeries(outcomes: nil, receipts: nil))
        }
    }
}
