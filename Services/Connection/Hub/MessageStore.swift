import ConnectionStorage
import PushCore
import PushEvents

/// The database, as the hub uses it.
protocol MessageStore: Sendable {
    func logIn(_ logins: [DeviceLogin]) async throws -> [KnownDevice?]
    func arrivalStart() async throws -> ArrivalCursor
    func arrived(_ cursor: inout ArrivalCursor) async throws -> (
        devices: [DeviceKey], isComplete: Bool
    )
    func missed(_ cursor: inout ArrivalCursor) async throws -> [DeviceKey]
    func waiting(of devices: [DeviceKey], limit: Int) async throws -> [WaitingMessage]
    func acknowledge(
        _ acks: [MessageAck],
        topics: KafkaTopics,
        at now: Instant
    ) async throws -> Int
    func displace(_ messages: [MessageAck]) async throws
    func opened(_ messages: [MessageAck]) async throws
}

extension ConnectionStore: MessageStore {}
