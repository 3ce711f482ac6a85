// A push goes through the stores of this module in this order:
//
//     Pushes/      PushStore       accepts it over HTTP, finds it, cancels it
//                  LedgerSQL       its state and its ledger: SQL fragments that all others use
//     Planning/    IntakeStore     makes it of an event
//                  ScheduleStore   releases it at its time
//                  PlanningStore   plans its audience, page by page
//     Deliveries/  ShardStore      claims and reads the shards of a broadcast
//                  DueStore        claims rows that are due
//                  PushLedger      records what was sent: rows, chunks, and a push's counters
//                  DeliveryStore   reads rows for reports
//                  SessionStore    the session that owns all these claims
//     Figures/     PushFigureStore counts outcomes by the minute, for charts

package import Storage

extension PushDatabase {
    package var pushes: PushStore { PushStore(database: database) }
    package var intake: IntakeStore { IntakeStore(database: database) }
    package var planning: PlanningStore {
        PlanningStore(database: database, zoneNames: zoneNames)
    }
    package var schedules: ScheduleStore {
        ScheduleStore(database: database, zoneNames: zoneNames)
    }
    package var fewDevices: FewDevicesStore { FewDevicesStore(database: singles, others: database) }
    package var due: DueStore { DueStore(database: database) }
    package var ledger: PushLedger { PushLedger(database: database, fewDevices: fewDevices) }
    package var deliveries: DeliveryStore { DeliveryStore(database: database) }
    package var shards: ShardStore { ShardStore(database: database) }
    package var sessions: SessionStore { SessionStore(database: database) }
    package var receipts: ReceiptStore { ReceiptStore(database: database) }
    package var drafts: DraftStore { DraftStore(database: database) }
    package var appOpens: AppOpenStore { AppOpenStore(database: database) }
    package var figures: PushFigureStore { PushFigureStore(database: database) }

    private var zoneNames: ZoneNames { part(ZoneNames.init) }
}
