import Gateway
import HTTPServer
import PushCore
import PushStorage
import Storage

/// The list of pushes as a file.
extension ConsoleSurface {
    var pushFileRoutes: [SurfaceRoute] {
        [page(.get, "/pushes.csv", for: .viewer) { pushFile($0) }]
    }

    /// A push may have a megabyte, so few are in memory at once.
    private static let filePage = 25

    /// `GET /console/{app}/pushes.csv?status=&q=`: the filtered list, with the ledgers.
    private func pushFile(_ visit: Visit) -> PageAnswer {
        let (database, app, t) = (database, visit.app, visit.t)
        let filter = PushFilter(visit)
        return .file(
            name: "pushes-\(app)-\(t.now.day).csv",
            HTTPFile(contentType: "text/csv; charset=utf-8") { write in
                try await write(CSV.line(Self.fileColumns))
                if filter.text != nil {
                    let found = try await pushes(filter, of: app)
                    return try await write(found.map { Self.line(of: $0, t) }.joined())
                }
                var listing = PushStore.Listing(statuses: filter.state.statuses, after: nil)
                while true {
                    let pushes = try await database.pushes.list(
                        app: app,
                        listing,
                        limit: Self.filePage
                    )
                    try await write(pushes.map { Self.line(of: $0, t) }.joined())
                    guard pushes.count == Self.filePage else { return }
                    listing.after = pushes.last?.id
                }
            }
        )
    }

    private static let fileColumns = [
        "push", "time", "status", "text", "source", "event", "targeted", "delivered", "failed",
        "expired", "suppressed", "inDoubt", "pending",
    ]

    private static func line(of push: StoredPush, _ t: Words) -> String {
        let ledger = push.ledger
        let counts = [
            ledger.targeted, ledger.delivered, ledger.failed, ledger.expired, ledger.suppressed,
            ledger.inDoubt, ledger.pending,
        ]
        return CSV.line(
            [
                push.id, (push.releaseAt ?? push.createdAt).iso8601, push.status.rawValue,
                push.headline(t), push.eventSource, push.eventID,
            ] + counts.map(String.init)
        )
    }
}
