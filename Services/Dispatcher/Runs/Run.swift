import PushCore
import PushStorage

/// One pass over members that are sent under one session: a shard (`ShardRun`), rows of a claim
/// (`RowRun`), or the pushes of a batch of records (`InlineRun`). The position identifies a member.
@DispatchLoop
protocol Run: RecordedRun {
    /// Whether the session is lost: answers are dropped.
    var isDropped: Bool { get }
    /// Returns the member; `nil` if it is not sent any more.
    func member(at position: Int) -> ShardMember?
    /// Returns the context of a member that is sent.
    func context(at position: Int) -> PushContext
    /// Returns the health of a member's provider.
    func health(at position: Int) -> ClientHealth
    /// Notes that a member holds a slot of the flight budget.
    func admitted(_ position: Int)
    /// Notes that a member has ended, or is due later.
    func ended(_ position: Int, _ end: DeliveryEnd)
    /// Frees the slot of a member that was answered after its run was dropped.
    func release(_ position: Int)
    /// Notes that members have reached the end of a stage.
    func reached(
        _ stage: EventStages.Stage,
        _ positions: [Int],
        at now: ContinuousClock.Instant
    )
}

extension Run {
    func reached(
        _ stage: EventStages.Stage,
        _ positions: [Int],
        at now: ContinuousClock.Instant
    ) {}
}

/// A run whose members are sent in order: a member that must wait holds up the members behind it.
@DispatchLoop
protocol OrderedRun: Run {
    /// The use of its members' slots.
    var use: SendBudget.Use { get }
    func health(of platform: Platform) -> ClientHealth
    /// Returns the first member of another platform or environment that was read behind a position.
    func other(than device: DeviceTarget, behind position: Int) -> Int?
}

/// A member of a run that waits for its provider's share of the flight budget.
struct WaitingMember {
    let run: any Run
    let position: Int
}

/// The health of one provider of one app, and the members that wait for it.
typealias ClientHealth = ProviderHealth<WaitingMember>

/// The parts that all runs of a process use.
struct RunServices {
    let session: WorkSession
    let room: SendSlots
    let inHand: WorkInHand
    let meters: DeliveryMetrics
    let figures: OutcomeFigures
    let recorder: any RunRecording
}
