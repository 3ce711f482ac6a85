import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let syncShow = Command(
        words: ["sync", "show"],
        summary: "shows an identity's datasets and devices, and what each was told last",
        operands: ["pool", "identity"],
        requiredOperands: 2,
        options: [json]
    ) { arguments, context in
        let pool = try arguments.operand(0, "pool")
        let identity = try arguments.operand(1, "identity")
        for id in [pool, identity] where !SyncID.isWellFormed(id) {
            throw ArgumentsError("\(Terminal.short(id, 64)) is no id such as us-east-1:0123abcd-…")
        }
        let database = try await context.database()
        guard let state = try await database.syncState.find(pool: pool, identity: identity) else {
            throw CommandFailure(
                "there is no identity pool \(pool): carillon app link <app>"
                    + " --cognito-identity-pool \(pool)"
            )
        }
        if arguments.has("--json") {
            Terminal.say(.object(state.json(of: identity)))
            return 0
        }
        if !state.isLinked { Terminal.say("the pool is not linked: nobody is served or told") }
        if state.isLinked, !state.isPushing {
            Terminal.say("the pool's push sync is off: nobody is told")
        }
        guard !state.isEmpty else {
            Terminal.say("nothing is kept of \(identity)")
            return 0
        }
        Terminal.say(Terminal.table(state.rowsOfDatasets))
        if !state.devices.isEmpty { Terminal.say("\n" + Terminal.table(state.rowsOfDevices)) }
        if !state.subscriptions.isEmpty {
            Terminal.say("\n" + Terminal.table(state.rowsOfSubscriptions))
        }
        return 0
    }
}

extension SyncState {
    fileprivate var rowsOfDatasets: [[String]] {
        [["DATASET", "COUNT", "RECORDS", "BYTES", "LAST BY", "MODIFIED", "TO BE TOLD"]]
            + datasets.map { dataset in
                let window = windows.first { $0.dataset == dataset.name }
                return [
                    dataset.name, String(dataset.syncCount), String(dataset.records),
                    String(dataset.bytes), Terminal.short(dataset.modifiedBy ?? "-", 40),
                    dataset.modifiedAt.iso8601,
                    window.map { "\($0.syncCount) at \($0.dueAt.iso8601)" } ?? "-",
                ]
            }
    }

    fileprivate var rowsOfDevices: [[String]] {
        [["DEVICE", "PLATFORM", "INSTALLATION", "REACHED", "REGISTERED"]]
            + devices.map { device in
                [
                    Terminal.short(device.id, 40), device.platform, device.installation,
                    device.isReached ? "yes" : "no", device.registeredAt.iso8601,
                ]
            }
    }

    fileprivate var rowsOfSubscriptions: [[String]] {
        [["DATASET", "DEVICE", "TOLD", "WHEN", "WHY NOT THE LAST"]]
            + subscriptions.map { item in
                [
                    item.dataset, Terminal.short(item.device, 40),
                    item.toldAt == nil ? "-" : String(item.told),
                    item.toldAt?.iso8601 ?? "-", reason(item) ?? "-",
                ]
            }
    }

    /// Why a device was not told of its dataset's last count; `nil` where it was.
    fileprivate func reason(_ item: Subscription) -> String? {
        guard let dataset = datasets.first(where: { $0.name == item.dataset }),
            item.told < dataset.syncCount
        else { return nil }
        if windows.contains(where: { $0.dataset == item.dataset }) { return "it is to be told" }
        if dataset.modifiedBy == item.device { return "it wrote it itself" }
        guard isPushing else { return "push sync is off" }
        return "it is on its way"
    }

    fileprivate func json(of identity: String) -> JSONObject {
        [
            "identityPoolId": .string(pool), "identityId": .string(identity),
            "linked": .bool(isLinked), "pushSync": .bool(isPushing),
            "datasets": .array(datasets.map(Self.json)), "devices": .array(devices.map(Self.json)),
            "subscriptions": .array(
                subscriptions.map { item in
                    var object: JSONObject = [
                        "datasetName": .string(item.dataset), "deviceId": .string(item.device),
                        "told": item.toldAt == nil ? .null : JSONValue(item.told),
                    ]
                    object["toldAt"] = item.toldAt.map { .string($0.iso8601) }
                    object["reason"] = reason(item).map(JSONValue.string)
                    return .object(object)
                }
            ),
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

    private static func json(_ dataset: SyncDataset) -> JSONValue {
        var object: JSONObject = [
            "datasetName": .string(dataset.name), "syncCount": JSONValue(dataset.syncCount),
            "records": JSONValue(dataset.records), "bytes": JSONValue(dataset.bytes),
            "createdAt": .string(dataset.createdAt.iso8601),
            "modifiedAt": .string(dataset.modifiedAt.iso8601),
        ]
        object["modifiedBy"] = dataset.modifiedBy.map(JSONValue.string)
        return .object(object)
    }

    private static func json(_ device: Device) -> JSONValue {
        [
            "deviceId": .string(device.id), "platform": .string(device.platform),
            "installation": .string(device.installation), "reached": .bool(device.isReached),
            "registeredAt": .string(device.registeredAt.iso8601),
        ]
    }
}
