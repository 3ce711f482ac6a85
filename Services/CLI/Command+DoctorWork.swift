import ConfigStorage
import ConnectionStorage
import Cryptography
import PushCore
import PushStorage
import SecureStorage
import Storage
import StorageAdmin
import SyncStorage

/// The checks for work of the services that waits for too long.
extension Doctor {
    mutating func examineBacklogs(_ database: PushDatabase) async throws {
        let records = try await database.outbox.count()
        found("outbox", records > 1000 ? .warning : .ok, "\(records) record(s) wait for Kafka")
        let dispatchers = try await database.sessions.count()
        if dispatchers == 0 {
            warn("dispatchers", "no dispatcher is running; nothing is sent")
        } else {
            ok("dispatchers", "\(dispatchers) running")
        }
        found(Self.assess(oldestInPlanning: try await database.planning.oldestAge()))
        let nodes = try await database.connections.nodes()
        let waiting = try await database.connections.estimatedWaitingCount()
        if nodes.isEmpty, waiting > 0 {
            warn("connections", "no connection node runs, and about \(waiting) message(s) wait")
        } else {
            ok("connections", "\(nodes.count) node(s), about \(waiting) message(s) wait")
        }
    }

    static func assess(oldestInPlanning age: Duration?) -> Finding {
        guard let age else {
            return Finding(name: "planning", status: .ok, detail: "no push waits to be planned")
        }
        let isLate = age > PlanningStore.longestWait
        let detail = "the oldest push that waits to be planned is \(age.components.seconds) s old"
        return Finding(
            name: "planning",
            status: isLate ? .warning : .ok,
            detail: isLate
                ? "\(detail): see it in carillon push list; run more dispatchers if pushes with a condition"
                    + " come faster than they are planned" : detail
        )
    }

    mutating func examineConfig(_ database: PushDatabase) async throws {
        for stored in try await database.config.refused() {
            fail(
                "config \(stored.app) \(stored.namespace)",
                "version \(stored.version) is refused and not served:"
                    + " \(Terminal.short(stored.reason ?? "", 400))"
            )
        }
        // Longer than the watcher's own delays, so older versions are stuck.
        for item in try await database.config.overdue(by: .seconds(60)) {
            let problem =
                switch item.stage {
                case .unchecked: "has not been looked at"
                case .unheard: "is current and not announced to clients"
                case .pending: "is to be announced, and is not"
                }
            warn(
                "config \(item.app) \(item.namespace)",
                "version \(item.version) \(problem) since \(item.since.iso8601): does a"
                    + " config-watcher run?"
            )
        }
    }

    mutating func examineSecure(_ database: PushDatabase, _ keys: KeyRing?) async throws {
        if let keys {
            for head in try await database.sealed.secureHeads() {
                let id = KeyRing.keyID(of: head.head)
                if let id, keys.keyIDs.contains(id) { continue }
                let key = id.map { "the key \($0)" } ?? "no key at all"
                fail(
                    "secure payloads",
                    "\(head.count) are under \(key), which CARILLON_MASTER_KEYS do not hold"
                )
            }
        }
        // Longer than the promised time until expired content is deleted.
        if let overdue = try await database.securePayloads.overdue(by: .seconds(120)) {
            warn(
                "secure payloads",
                "\(overdue.count) expired at \(overdue.since.iso8601) and still have their"
                    + " content; is carillon-secure-payload running?"
            )
        }
        if let app = try await database.apps.secureUnnamed()?.id,
            try await !database.identitySecrets.hasProofs(app: app)
        {
            warn(
                "secure payloads \(app)",
                "secure-unnamed is on, and no identity can authenticate: carillon login set \(app),"
                    + " or carillon identity set-secret \(app)"
            )
        }
    }

    mutating func examineSync(_ database: PushDatabase) async throws {
        // Longer than a dispatcher needs to end a due window.
        guard let overdue = try await database.syncState.overdue(by: .seconds(60)) else { return }
        warn(
            "push sync",
            "devices are not notified of \(overdue.count) changed datasets, since"
                + " \(overdue.since.iso8601): does a dispatcher run?"
        )
    }
}
