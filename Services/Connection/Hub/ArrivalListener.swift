import EventLoop
import Storage

extension DeviceHub {
    /// Wakes the hub whenever a dispatcher has stored messages. Returns once it listens; the subscription
    /// ends with the pool of the database.
    nonisolated func listen(to database: PushDatabase) async {
        await database.listen(to: .connections) { [self] _ in
            loop.execute { [self] in messagesArrived() }
        }
    }
}
