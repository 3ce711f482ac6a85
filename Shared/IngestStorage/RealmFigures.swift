import Postgres
package import PushCore
import Storage

/// A figure of an app's Realm clients.
package struct RealmFigure: Equatable, Sendable {
    /// The raw values are those of the table.
    package enum Kind: String, Sendable {
        /// Sign-ins by the version of the SDK and its core.
        case client
        /// Sign-ins by their provider.
        case signIn = "sign-in"
        /// Opened sockets by the version of the core.
        case core
        case objects
        /// Errors of this service that clients report, by code.
        case complaint
        /// The open sockets of one process.
        case sockets
    }

    package struct Key: Hashable, Sendable {
        package let app: String
        package let kind: Kind
        package let name: String

        package init(app: String, kind: Kind, name: String) {
            (self.app, self.kind, self.name) = (app, kind, name)
        }
    }

    package let key: Key
    package let count: Int
    package var changedAt = Instant.earliest

    package init(_ key: Key, count: Int) { (self.key, self.count) = (key, count) }
}

/// The figures of Realm's clients. The times are Postgres'.
package struct RealmFigureStore: Sendable {
    let database: Database

    /// The most figures of an app whose names clients choose.
    package static let maximumFigures = 1000

    /// Adds counts to the figures of apps.
    package func add(_ figures: [RealmFigure]) async throws {
        guard !figures.isEmpty else { return }
        try await put(figures, "realm_figures.count + excluded.count")
    }

    /// Replaces the open sockets of a process, and forgets those of processes that report no more, and
    /// figures that have not changed for a year.
    package func report(openSockets open: [String: Int], of process: String) async throws {
        let figures = open.map { app, count in
            RealmFigure(.init(app: app, kind: .sockets, name: process), count: count)
        }
        if !figures.isEmpty { try await put(figures, "excluded.count") }
        _ = try await database.execute(
            """
            DELETE FROM realm_figures
            WHERE kind = $1 AND (name = $2 AND app <> ALL ($3::text[])
                    OR changed_at < now() - interval '1 minute')
                OR changed_at < now() - interval '1 year'
            """,
            [
                .text(RealmFigure.Kind.sockets.rawValue), .text(process),
                .textArray(Array(open.keys)),
            ]
        )
    }

    private func put(_ figures: [RealmFigure], _ count: String) async throws {
        let sorted = figures.sorted {
            ($0.key.app, $0.key.kind.rawValue, $0.key.name)
                < ($1.key.app, $1.key.kind.rawValue, $1.key.name)
        }
        _ = try await database.execute(
            """
            INSERT INTO realm_figures (app, kind, name, count)
            SELECT f.app, f.kind, f.name, f.count
            FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
                AS f(app, kind, name, count)
            JOIN apps ON apps.id = f.app
            WHERE f.kind <> ALL ($5::text[])
                OR (SELECT count(*) FROM realm_figures r
                    WHERE r.app = f.app AND r.kind = ANY ($5::text[])) < \(Self.maximumFigures)
                OR EXISTS (SELECT FROM realm_figures r
                    WHERE r.app = f.app AND r.kind = f.kind AND r.name = f.name)
            ON CONFLICT (app, kind, name) DO UPDATE SET count = \(count), changed_at = now()
            """,
            [
                .textArray(sorted.map(\.key.app)), .textArray(sorted.map(\.key.kind.rawValue)),
                .textArray(sorted.map(\.key.name)), .integerArray(sorted.map(\.count)),
                .textArray([RealmFigure.Kind.client, .core].map(\.rawValue)),
            ]
        )
    }

    /// Returns the figures of an app, by kind, the largest first.
    package func list(of app: String) async throws -> [RealmFigure] {
        try await database.execute(
            """
            SELECT kind, name, count, changed_at FROM realm_figures
            WHERE app = $1 ORDER BY kind, count DESC, name
            """,
            [.text(app)]
        ).rows.compactMap { row in
            guard let kind = RealmFigure.Kind(rawValue: try row.text("kind")) else { return nil }
            var figure = RealmFigure(
                .init(app: app, kind: kind, name: try row.text("name")),
                count: try row.integer("count")
            )
            figure.changedAt = try row.instant("changed_at")
            return figure
        }
    }
}
