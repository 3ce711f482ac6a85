import JSON
import PushCore
import ServiceKit
import SyncStorage

extension Command {
    static let syncShow = Command(
        "sync show <pool> <identity>",
        "Show an identity's datasets, devices and last notified counts"
    ) { arguments, context in
        let pool = try arguments.operand(0, "pool")
        let identity = try arguments.operand(1, "identity")
        for id in [pool, identity] where !SyncID.isWellFormed(id) {
            throw ArgumentsError(
                "\(Terminal.short(id, 64)) is not an id such as us-east-1:0123abcd-…"
            )
        }
        let database = try await context.database()
        guard let state = try await database.syncState.find(pool: pool, identity: identity) else {
            throw CommandFailure(
                "there is no identity pool \(pool): carillon app link <app>"
                    + " --cognito-identity-pool \(pool)"
            )
        }
        return arguments.answer(state.json(of: identity), state.words(of: identity))
    }
}

extension SyncState {
    private var datasetListing: Listing<SyncDataset> {
        Listing(
            datasets,
            columns: [
                .text("datasetName", title: "DATASET", \.name),
                .number("syncCount", title: "COUNT", \.syncCount),
                .number("records", title: "RECORDS", \.records),
                .number("bytes", title: "BYTES", \.bytes),
                .member("createdAt") { .string($0.createdAt.iso8601) },
                .cell("LAST BY") { Terminal.short($0.modifiedBy ?? "-", 40) },
                .text("modifiedAt", title: "MODIFIED", \.modifiedAt.iso8601),
                .member("modifiedBy") { $0.modifiedBy.map(JSONValue.string) },
                .cell("TO BE TOLD") { dataset in
                    windows.first { $0.dataset == dataset.name }
                        .map { "\($0.syncCount) at \($0.dueAt.iso8601)" } ?? "-"
                },
            ]
        )
    }

    private var deviceListing: Listing<Device> {
        Listing(
            devices,
            columns: [
                .value("deviceId", title: "DEVICE", { .string($0.id) }) {
                    Terminal.short($0.id, 40)
                },
                .text("platform", title: "PLATFORM", \.platform),
                .text("installation", title: "INSTALLATION", \.installation),
                .value("reached", title: "REACHED", { .bool($0.isReached) }) {
                    $0.isReached ? "yes" : "no"
                },
                .text("registeredAt", title: "REGISTERED", \.registeredAt.iso8601),
            ]
        )
    }

    private var subscriptionListing: Listing<Subscription> {
        Listing(
            subscriptions,
            columns: [
                .text("datasetName", title: "DATASET", \.dataset),
                .value("deviceId", title: "DEVICE", { .string($0.device) }) {
                    Terminal.short($0.device, 40)
                },
                .value(
                    "told",
                    title: "TOLD",
                    { $0.notifiedAt == nil ? .null : JSONValue($0.notifiedCount) }
                ) {
                    $0.notifiedAt == nil ? "-" : String($0.notifiedCount)
                },
                .member("toldAt") { $0.notifiedAt.map { .string($0.iso8601) } },
                .member("reason") { reason($0).map(JSONValue.string) },
                .cell("WHEN") { $0.notifiedAt?.iso8601 ?? "-" },
                .cell("WHY NOT THE LAST") { reason($0) ?? "-" },
            ]
        )
    }

    /// Returns why a device was not notified of its dataset's last count; `nil` if it was.
    private func reason(_ item: Subscription) -> String? {
        guard let dataset = datasets.first(where: { $0.name == item.dataset }),
            item.notifiedCount < dataset.syncCount
        else { return nil }
        if windows.contains(where: { $0.dataset == item.dataset }) { return "to be notified" }
        if dataset.modifiedBy == item.device { return "it wrote it itself" }
        guard isPushing else { return "push sync is off" }
        return "in flight"
    }

    fileprivate func words(of identity: String) -> String {
        var lines: [String] = []
        if !isLinked { lines.append("the pool is not linked to an app; it is not served") }
        if isLinked, !isPushing {
            lines.append("the pool's push sync is off: no device is notified")
        }
        guard !isEmpty else {
            return (lines + ["no data is stored for \(identity)"]).joined(separator: "\n")
        }
        lines.append(datasetListing.table())
        if !devices.isEmpty { lines.append("\n" + deviceListing.table()) }
        if !subscriptions.isEmpty { lines.append("\n" + subscriptionListing.table()) }
        return lines.joined(separator: "\n")
    }

    fileprivate func json(of identity: String) -> JSONObject {
        [
            "identityPoolId": .string(pool), "identityId": .string(identity),
            "linked": .bool(isLinked), "pushSync": .bool(isPushing),
            "datasets": datasetListing.json, "devices": deviceListing.json,
            "subscriptions": subscriptionListing.json,
            "waiting": .array(
                windows.map { window in
                    [
                        "datasetName": .string(window.dataset),
                        "syncCount": JSONValue(window.syncCount),
                        "changes": JSONValue(window.changes),
                        "dueAt": .string(window.dueAt.iso8601),
                    ]
                }
            ),
        ]
    }
}
