import IngestStorage
import ServiceKit
import ServiceShell
import Storage

/// Makes the job that adds the figures of Realm's clients to the database's.
func realmReport(
    _ realm: SharedRealm,
    _ database: PushDatabase,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    let process = processName()
    return PeriodicJob(
        "realm-report",
        cannot: "what Realm's clients are and do is not reported",
        in: runtime,
        begin: { try await database.untilReady() }
    ) {
        let figures = realm.status.take()
        do {
            try await database.realmFigures.add(figures)
        } catch {
            realm.status.giveBack(figures)
            throw error
        }
        try await database.realmFigures.report(openSockets: realm.openSockets, of: process)
        return .seconds(5)
    }
}
