import Cryptography
import InstallationStorage
import JSON
import Kafka
import PushCore
import PushEvents
import PushProviders
import ServiceKit
import Storage

extension Command {
    static let doctor = Command(
        "doctor",
        "Check everything that the services need and report problems",
        options: [groupOption, json]
    ) { arguments, context in
        let groups = try groups(arguments.values("--group"), everywhere: try context.groupID())
        var doctor = Doctor(context: context, groups: groups)
        await doctor.examine()
        let checks = Listing(
            doctor.findings,
            columns: [
                .cell { $0.status.rawValue }, .text("name", \.name),
                .member("status") { .string($0.status.rawValue) }, .text("detail", \.detail),
            ]
        )
        return arguments.answer(
            [
                "ok": .bool(!doctor.hasFailures), "checks": checks.json,
                "groups": .array(doctor.lags.map(\.json)),
            ],
            checks.table(),
            exitCode: doctor.hasFailures ? 1 : 0
        )
    }
}

/// A check of all components; a failing check does not prevent the others.
struct Doctor {
    enum Status: String, Equatable {
        case ok, warning, failed
    }

    struct Finding: Equatable {
        let name: String
        let status: Status
        let detail: String
    }

    let context: CommandContext
    /// The consumer groups that differ from their services' defaults.
    let groups: [ConsumerRole: String]
    private(set) var findings: [Finding] = []
    /// The lag of each group, by topic; only of groups whose lag could be read.
    var lags: [GroupLag] = []

    init(context: CommandContext, groups: [ConsumerRole: String]) {
        self.context = context
        self.groups = groups
    }

    var hasFailures: Bool { findings.contains { $0.status == .failed } }

    mutating func found(_ name: String, _ status: Status, _ detail: String) {
        found(Finding(name: name, status: status, detail: detail))
    }

    mutating func found(_ finding: Finding) { findings.append(finding) }

    mutating func ok(_ name: String, _ detail: String) { found(name, .ok, detail) }
    mutating func warn(_ name: String, _ detail: String) { found(name, .warning, detail) }
    mutating func fail(_ name: String, _ detail: String) { found(name, .failed, detail) }

    /// Runs all checks. Findings are in the order of the checks.
    mutating func examine() async {
        let providers = await check("providers") { try $0.examineProviders() }
        let cluster = await check("kafka") { try await $0.examineKafka() }
        let keys = await check("master keys") { try $0.examineMasterKeys() }
        _ = await check("postgres") { doctor in
            guard let database = try await doctor.examinePostgres() else { return }
            try await doctor.examineApps(database, keys, providers)
            try await doctor.examineBacklogs(database)
            try await doctor.expect("config", "all published templates were announced") {
                try await $0.examineConfig(database)
            }
            try await doctor.expect("secure payloads", "expired content is deleted") {
                try await $0.examineSecure(database, keys)
            }
            try await doctor.expect("push sync", "changes are notified") {
                try await $0.examineSync(database)
            }
            try await doctor.examineIngest(database, cluster)
            try await doctor.examineLogins(database)
        }
    }

    /// Runs checks; an error becomes their last finding.
    private mutating func check<Value>(
        _ name: String,
        _ examine: (inout Doctor) async throws -> Value
    ) async -> Value? {
        do {
            return try await examine(&self)
        } catch {
            fail(name, "\(error)")
            return nil
        }
    }

    /// Runs checks that only report problems; if they find no problem, reports `words`.
    private mutating func expect(
        _ name: String,
        _ words: String,
        _ examine: (inout Doctor) async throws -> Void
    ) async throws {
        let before = findings.count
        try await examine(&self)
        if findings.count == before { ok(name, words) }
    }

    private mutating func examineProviders() throws -> ProviderConfiguration {
        let (configuration, own) = (try context.providers(), ProviderConfiguration())
        let origins: [(ProviderConfiguration) -> String] = [
            \.apnsProductionURL, \.apnsSandboxURL, \.fcmURL, \.wnsLiveTokenURL, \.wnsEntraTokenURL,
        ]
        let changed = origins.filter { $0(configuration) != $0(own) }.map { $0(configuration) }
        let list = changed.joined(separator: ", ")
        ok("providers", changed.isEmpty ? "the providers' own origins" : "overridden: \(list)")
        return configuration
    }

    private mutating func examineKafka() async throws -> KafkaCluster {
        let cluster = try await KafkaAdmin.describe(try context.kafka(), on: context.loop)
        ok("kafka", "\(cluster.brokers.count) broker(s)")
        let known = Dictionary(cluster.topics.map { ($0.name, $0.partitions) }) { $1 }
        for name in try context.topics().all {
            if let partitions = known[name] {
                ok("topic \(name)", "\(partitions) partition(s)")
            } else {
                fail("topic \(name)", "missing: run carillon migrate")
            }
        }
        try await examineGroups(cluster)
        return cluster
    }

    private mutating func examineMasterKeys() throws -> KeyRing {
        let keys = try context.masterKeys()
        ok("master keys", "sealing with \(keys.primaryKeyID)")
        return keys
    }

    /// - Returns: The database; `nil` if its schema cannot be used.
    private mutating func examinePostgres() async throws -> PushDatabase? {
        let database = try context.bareDatabase()
        let state = try await database.schemaState()
        ok("postgres", "reachable")
        found(Self.assess(hostIsAhead: database.clock.hostIsAhead))
        guard case .usable(let version) = state else {
            fail("schema", state.notReadyReason ?? "cannot be used")
            return nil
        }
        ok("schema", "version \(version)")
        return database
    }

    private mutating func examineApps(
        _ database: PushDatabase,
        _ keys: KeyRing?,
        _ providers: ProviderConfiguration?
    ) async throws {
        let apps = try await database.apps.list()
        let credentials = try await database.credentials.list()
        if apps.isEmpty { warn("apps", "none yet: carillon app create <app>") }
        for app in apps {
            let own = credentials.filter { $0.app == app.id }
            guard !app.isClosed else {
                warn("app \(app.id)", "its deletion was cut short: carillon app delete \(app.id)")
                continue
            }
            let sealed = [
                (app.appKeySealed, StoredApp.appKeyContext(app.id)),
                (app.masterKeySealed, StoredApp.masterKeyContext(app.id)),
            ]
            if let keys, !sealed.allSatisfy({ (try? keys.open($0.0, context: $0.1)) != nil }) {
                fail("app \(app.id)", "its keys cannot be decrypted with CARILLON_MASTER_KEYS")
                continue
            }
            if own.isEmpty {
                warn("app \(app.id)", "no credentials: it can send to no provider")
            } else {
                ok("app \(app.id)", "\(own.count) credential(s)")
            }
            try await examineLinks(of: app.id, own, database)
            try await examineDevices(of: app.id, own, database)
            guard let keys else { continue }
            for credential in own { examine(credential, keys, providers) }
        }
    }

    /// Checks linked projects: without an FCM credential their devices are not notified of new
    /// templates.
    private mutating func examineLinks(
        of app: String,
        _ credentials: [StoredCredential],
        _ database: PushDatabase
    ) async throws {
        let projects = try await database.appLinks.list(app).filter { $0.kind == .fcmProject }
        guard let first = projects.first, !credentials.contains(where: { $0.platform == .fcm })
        else { return }
        let others = projects.count > 1 ? " and \(projects.count - 1) more" : ""
        warn(
            "links \(app)",
            "the project \(first.name)\(others) is linked, and there is no credential for FCM: its"
                + " Android devices are not notified of a new template"
        )
    }

    /// Checks topics: a credential with a mistyped topic is valid, but reaches no device.
    private mutating func examineDevices(
        of app: String,
        _ credentials: [StoredCredential],
        _ database: PushDatabase
    ) async throws {
        let counts: [InstallationsWithoutCredential]
        do {
            counts = try await database.installations.unfit(app: app, credentials)
        } catch let error as StorageError where error.isStatementTimeout {
            return warn("devices \(app)", "are too many to be counted in time")
        }
        for unfit in counts where unfit.count > 0 {
            let reasons = [
                (unfit.withoutCredential, "there is no credential for their provider"),
                (unfit.ofOtherTopics, "name a topic that no credential is for"),
                (unfit.withoutTopic, "name no topic, and none of the credentials is the default"),
            ].filter { $0.0 > 0 }.map { "\($0.0): \($0.1)" }
            // A few devices of an unknown topic are a warning; if no device has a matching credential,
            // the app is misconfigured.
            let isBroken = unfit.count == unfit.total && unfit.withoutCredential == 0
            found(
                "devices \(app) \(unfit.platform.rawValue)",
                isBroken ? .failed : .warning,
                "no credential fits \(unfit.count) of \(unfit.total) (\(reasons.joined(separator: "; ")))"
            )
        }
    }

    private mutating func examine(
        _ credential: StoredCredential,
        _ keys: KeyRing,
        _ providers: ProviderConfiguration?
    ) {
        let name =
            "credential \(credential.app) \(credential.platform.rawValue)"
            + (credential.name.isEmpty ? "" : " \(credential.name)")
        do {
            let secret = try credential.opened(by: keys)
            switch credential.platform {
            case .apns: _ = try APNsCredential(secret: secret)
            case .fcm:
                _ = try FCMCredential(
                    secret: secret,
                    tokenHosts: (providers ?? ProviderConfiguration()).fcmTokenHosts
                )
            case .wns: _ = try WNSCredential(secret: secret)
            case .mpns: _ = try MPNSCredential(secret: secret)
            // Connections have no credentials.
            case .connection: break
            }
            guard let end = credential.end else { return ok(name, credential.summaryText) }
            let month: Int64 = 30 * 86_400_000
            if end <= .now() {
                fail(name, "its certificate ended \(end.iso8601)")
            } else if end <= Instant.now().adding(milliseconds: month) {
                warn(name, "its certificate ends \(end.iso8601)")
            } else {
                ok(name, credential.summaryText)
            }
        } catch {
            fail(name, "\(error)")
        }
    }

    /// Compares this host's clock with Postgres'. Usually the services run on this host, too.
    static func assess(hostIsAhead: Duration) -> Finding {
        guard DatabaseClock.exceedsTolerance(hostIsAhead) else {
            return Finding(name: "clock", status: .ok, detail: "agrees with Postgres' clock")
        }
        return Finding(
            name: "clock",
            status: .warning,
            detail:
                "\(DatabaseClock.text(hostIsAhead: hostIsAhead)): synchronize both clocks with NTP"
        )
    }
}
