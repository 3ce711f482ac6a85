import Cryptography
import JSON
import Kafka
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

extension Command {
    static let doctor = Command(
        words: ["doctor"],
        summary: "checks what the services need, and says what is wrong with it",
        options: [groupOption, json]
    ) { arguments, context in
        let groups = try groups(arguments.values("--group"), everywhere: try context.groupID())
        var doctor = Doctor(context: context, groups: groups)
        await doctor.examine()
        if arguments.has("--json") {
            Terminal.say([
                "ok": .bool(!doctor.hasFailures),
                "checks": .array(
                    doctor.findings.map { finding in
                        [
                            "name": .string(finding.name),
                            "status": .string(finding.status.rawValue),
                            "detail": .string(finding.detail),
                        ]
                    }
                ),
                "groups": .array(doctor.lags.map(\.json)),
            ])
        } else {
            Terminal.say(
                Terminal.table(doctor.findings.map { [$0.status.rawValue, $0.name, $0.detail] })
            )
        }
        return doctor.hasFailures ? 1 : 0
    }
}

/// One look at everything; a check that fails does not keep the others from being made.
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
    /// The consumer groups that are not their services' defaults.
    let groups: [KafkaTopicReader: String]
    private(set) var findings: [Finding] = []
    /// How far each group is behind, by topic; those of the groups that could be asked for.
    var lags: [GroupLag] = []

    init(context: CommandContext, groups: [KafkaTopicReader: String]) {
        self.context = context
        self.groups = groups
    }

    var hasFailures: Bool { findings.contains { $0.status == .failed } }

    mutating func found(_ name: String, _ status: Status, _ detail: String) {
        found(Finding(name: name, status: status, detail: detail))
    }

    mutating func found(_ finding: Finding) { findings.append(finding) }

    mutating func examine() async {
        let providers = examineProviders()
        let cluster = await examineKafka()
        let keys = examineMasterKeys()
        guard let database = await examinePostgres() else { return }
        do {
            try await examineApps(database, keys, providers)
            try await examineWork(database)
            try await examineConfig(database)
            try await examineSecure(database, keys)
            try await examineSync(database)
            try await examineIngest(database, cluster)
            try await examineLogins(database)
        } catch {
            found("postgres", .failed, "\(error)")
        }
    }

    private mutating func examineProviders() -> ProviderConfiguration? {
        do {
            let configuration = try context.providers()
            let origins = [
                configuration.apnsProductionURL, configuration.apnsSandboxURL,
                configuration.fcmURL, configuration.wnsLiveTokenURL,
                configuration.wnsEntraTokenURL,
            ]
            let own = ProviderConfiguration()
            let real = [
                own.apnsProductionURL, own.apnsSandboxURL, own.fcmURL, own.wnsLiveTokenURL,
                own.wnsEntraTokenURL,
            ]
            let changed = zip(origins, real).filter { $0 != $1 }.map(\.0)
            if changed.isEmpty {
                found("providers", .ok, "the providers' own origins")
            } else {
                found("providers", .ok, "overridden: \(changed.joined(separator: ", "))")
            }
            return configuration
        } catch {
            found("providers", .failed, "\(error)")
            return nil
        }
    }

    /// - Returns: What there is; `nil` where it cannot be asked.
    private mutating func examineKafka() async -> KafkaCluster? {
        do {
            let cluster = try await KafkaAdmin.describe(try context.kafka(), on: context.loop)
            found("kafka", .ok, "\(cluster.brokers.count) broker(s)")
            let known = Dictionary(cluster.topics.map { ($0.name, $0.partitions) }) { $1 }
            for name in try context.topics().all {
                if let partitions = known[name] {
                    found("topic \(name)", .ok, "\(partitions) partition(s)")
                } else {
                    found("topic \(name)", .failed, "missing: run carillon migrate")
                }
            }
            try await examineGroups(cluster)
            return cluster
        } catch {
            found("kafka", .failed, "\(error)")
            return nil
        }
    }

    private mutating func examineMasterKeys() -> KeyRing? {
        do {
            let keys = try context.masterKeys()
            found("master keys", .ok, "sealing with \(keys.primaryKeyID)")
            return keys
        } catch {
            found("master keys", .failed, "\(error)")
            return nil
        }
    }

    private mutating func examinePostgres() async -> PushDatabase? {
        do {
            let database = try context.bareDatabase()
            let state = try await database.schemaState()
            found("postgres", .ok, "reachable")
            found(Self.judge(hostIsAhead: database.clock.hostIsAhead))
            if case .usable(let version) = state {
                found("schema", .ok, "version \(version)")
                return database
            }
            found("schema", .failed, state.notReadyReason ?? "cannot be used")
        } catch {
            found("postgres", .failed, "\(error)")
        }
        return nil
    }

    private mutating func examineApps(
        _ database: PushDatabase,
        _ keys: KeyRing?,
        _ providers: ProviderConfiguration?
    ) async throws {
        let apps = try await database.apps.list()
        let credentials = try await database.credentials.list()
        if apps.isEmpty { found("apps", .warning, "none yet: carillon app create <app>") }
        for app in apps {
            let own = credentials.filter { $0.app == app.id }
            guard !app.isClosed else {
                found(
                    "app \(app.id)",
                    .warning,
                    "its deletion was cut short: carillon app delete \(app.id)"
                )
                continue
            }
            if let keys {
                let opens =
                    (try? keys.open(app.appKeySealed, context: StoredApp.appKeyContext(app.id)))
                    != nil
                    && (try? keys.open(
                        app.masterKeySealed,
                        context: StoredApp.masterKeyContext(app.id)
                    )) != nil
                if !opens {
                    found("app \(app.id)", .failed, "CARILLON_MASTER_KEYS do not open its keys")
                    continue
                }
            }
            if own.isEmpty {
                found("app \(app.id)", .warning, "no credentials: it can send to no provider")
            } else {
                found("app \(app.id)", .ok, "\(own.count) credential(s)")
            }
            try await examineLinks(of: app.id, own, database)
            try await examineDevices(of: app.id, own, database)
            guard let keys else { continue }
            for credential in own { examine(credential, keys, providers) }
        }
    }

    /// A mistyped topic is a credential in order, and reaches nobody.
    private mutating func examineDevices(
        of app: String,
        _ credentials: [StoredCredential],
        _ database: PushDatabase
    ) async throws {
        let counts: [UnfitInstallations]
        do {
            counts = try await database.installations.unfit(app: app, credentials)
        } catch let error as StorageError where error.isStatementTimeout {
            return found("devices \(app)", .warning, "are too many to be counted in time")
        }
        for unfit in counts where unfit.count > 0 {
            let reasons = [
                (unfit.withoutCredential, "there is no credential for their provider"),
                (unfit.ofOtherTopics, "name a topic that no credential is for"),
                (unfit.withoutTopic, "name no topic, and none of the credentials is the default"),
            ].filter { $0.0 > 0 }.map { "\($0.0): \($0.1)" }
            // One device that names something odd is no failure of the app's; all of them are.
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
            }
            guard let end = credential.end else { return found(name, .ok, credential.summaryText) }
            let month: Int64 = 30 * 86_400_000
            if end <= .now() {
                found(name, .failed, "its certificate ended \(end.iso8601)")
            } else if end <= Instant.now().adding(milliseconds: month) {
                found(name, .warning, "its certificate ends \(end.iso8601)")
            } else {
                found(name, .ok, credential.summaryText)
            }
        } catch {
            found(name, .failed, "\(error)")
        }
    }

    private mutating func examineWork(_ database: PushDatabase) async throws {
        let waiting = try await database.outbox.count()
        found(
            "outbox",
            waiting > 1000 ? .warning : .ok,
            "\(waiting) record(s) wait for Kafka"
        )
        let dispatchers = try await database.sessions.count()
        found(
            "dispatchers",
            dispatchers == 0 ? .warning : .ok,
            dispatchers == 0 ? "none is running: nothing is sent" : "\(dispatchers) running"
        )
        found(Self.judge(oldestInPlanning: try await database.planning.oldestAge()))
    }

    /// This command runs where the services do, as a rule.
    static func judge(hostIsAhead: Duration) -> Finding {
        guard DatabaseClock.isTooMuch(hostIsAhead) else {
            return Finding(name: "clock", status: .ok, detail: "as Postgres'")
        }
        return Finding(
            name: "clock",
            status: .warning,
            detail: "\(DatabaseClock.text(hostIsAhead: hostIsAhead)): keep both by NTP"
        )
    }

    static func judge(oldestInPlanning age: Duration?) -> Finding {
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
}
