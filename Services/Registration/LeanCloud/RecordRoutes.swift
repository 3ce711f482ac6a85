import Gateway
import HTTPServer
import JSON
import PushCore
import PushStorage

/// Push records: by their own id, as objects of `_Notification`, and by the label that a sender gave several
/// pushes.
extension LeanCloudSurface {
    var recordRoutes: [LeanCloudRoute] {
        [
            LeanCloudRoute(.get, "tables/Notifications/:id") { try await read(.pushRecord, $0) },
            LeanCloudRoute(.get, "classes/_Notification") { try await find(.pushRecord, $0) },
            LeanCloudRoute(.get, "classes/_Notification/:id") { call in
                try await read(.pushRecord, call)
            },
            LeanCloudRoute(.delete, "classes/_Notification/:id") { call in
                try await delete(.pushRecord, call)
            },
            LeanCloudRoute(.get, "notifications") { try await find(.pushRecord, $0) },
            LeanCloudRoute(.get, "notifications/:id") { try await readLabelled($0) },
            LeanCloudRoute(.delete, "notifications/:id") { try await deleteLabelled($0) },
        ]
    }

    /// Returns the pushes of one `notification_id`, or the one with this object id.
    private func labelled(_ call: LeanCloudCall) async throws -> [StoredPush] {
        let app = call.caller.appID
        let name = call.path("id")
        var pushes = try await database.pushes.find(app: app, label: name)
        if pushes.isEmpty, let push = try await database.pushes.find(name), push.app == app,
            try await !database.pushes.isHidden(name)
        {
            pushes = [push]
        }
        guard !pushes.isEmpty else { throw LeanCloudError.objectNotFound("_Notification") }
        return try await database.receipts.added(to: pushes)
    }

    /// Returns the latest push of a label, with the sums of the counters of all its pushes.
    private func readLabelled(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        let pushes = try await labelled(call)
        var latest = pushes[0]
        for other in pushes.dropFirst() {
            latest.ledger.add(other.ledger)
            latest.confirmed += other.confirmed
            latest.receipts += other.receipts
        }
        latest.failures = .together(pushes.map(\.failures))
        let platforms = try await objects.platforms(of: pushes)
        return LeanCloudAnswer(
            .object(
                PushRecord.object(
                    of: latest,
                    platforms: platforms.count == pushes.count
                        ? platforms.values.flatMap { $0 } : nil,
                    withContent: call.caller.isMaster
                )
            )
        )
    }

    private func deleteLabelled(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        guard call.caller.isMaster else {
            throw LeanCloudError.masterKeyNeeded(for: "Deleting a push record")
        }
        let pushes = try await labelled(call)
        _ = try await database.pushes.hide(app: call.caller.appID, ids: pushes.map(\.id))
        return .empty
    }
}

extension Ledger {
    fileprivate mutating func add(_ other: Ledger) {
        targeted += other.targeted
        delivered += other.delivered
        failed += other.failed
        expired += other.expired
        suppressed += other.suppressed
        inDoubt += other.inDoubt
        pending += other.pending
        invalidTokens += other.invalidTokens
    }
}
