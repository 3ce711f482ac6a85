internal import EventLoop

extension PostgresPool {
    /// One `listen`; confined to the loop.
    final class Subscription {
        let channel: String
        let handler: @Sendable (String) -> Void
        /// Set until the first LISTEN is acknowledged.
        private var continuation: CheckedContinuation<Void, any Error>?
        var isListening: Bool { continuation == nil }
        private(set) var deadline: ContinuousClock.Instant

        init(
            _ channel: String,
            _ handler: @escaping @Sendable (String) -> Void,
            _ continuation: CheckedContinuation<Void, any Error>,
            until deadline: ContinuousClock.Instant
        ) {
            self.channel = channel
            self.handler = handler
            self.continuation = continuation
            self.deadline = deadline
        }

        /// Notes that the server acknowledged LISTEN. The first time, `listen` returns; later,
        /// after a reconnect, the handler is told that notifications may have been missed.
        func listening() {
            guard let continuation else { return handler("") }
            self.continuation = nil
            deadline = .now + .seconds(1 << 40)
            continuation.resume()
        }

        func fail(_ error: any Error) {
            continuation?.resume(throwing: error)
            continuation = nil
            deadline = .now + .seconds(1 << 40)
        }
    }

    /// Subscribes to a channel's notifications, also after a reconnect.
    ///
    /// - Parameters:
    ///   - channel: Any name; quoted here.
    ///   - handler: Called on the loop with each payload, and with `""` after each reconnect, as
    ///     notifications may have been missed. It must be quick.
    /// - Returns: The subscription, once the server listens; retain it, and cancel it in the end.
    /// - Throws: `PostgresError`, retryable if the server could not be reached in time.
    package func listen(
        _ channel: String,
        _ handler: @escaping @Sendable (String) -> Void
    ) async throws -> PostgresListener {
        guard phase == .open || phase == .idle else { throw PostgresError.closed }
        try Task.checkCancellation()
        start()
        nextSubscription += 1
        let id = nextSubscription
        do {
            try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    let subscription = Subscription(
                        channel,
                        handler,
                        continuation,
                        until: .now + configuration.acquireTimeout
                    )
                    subscriptions[id] = subscription
                    addListenerSlot()
                    if let listener { subscribe(subscription, on: listener) }
                }
            } onCancel: {
                loop.execute { self.assumeIsolated { $0.cancelSubscribing(id) } }
            }
        } catch {
            unsubscribe(id)
            throw error
        }
        return PostgresListener(pool: self, id: id)
    }

    private func cancelSubscribing(_ id: Int) { subscriptions[id]?.fail(CancellationError()) }

    private func subscribe(_ subscription: Subscription, on connection: PostgresConnection) {
        let request = PostgresRequest(
            "LISTEN \(quotedIdentifier(subscription.channel))",
            isPrepared: false
        ) { result in
            switch result {
            case .success: subscription.listening()
            case .failure(let error):
                // A refusal fails the subscription; a retryable error is retried on another
                // connection.
                guard let lost = error as? PostgresError, lost.isRetryable else {
                    return subscription.fail(error)
                }
                connection.fail(lost)
            }
        }
        // The LISTEN must not share a transaction with an UNLISTEN of the same channel: the server
        // would not stop listening in between, and notifications for the old subscription would
        // arrive.
        request.runsAlone = true
        connection.submit(request)
    }

    fileprivate func unsubscribe(_ id: Int) {
        guard let subscription = subscriptions.removeValue(forKey: id) else { return }
        guard !subscriptions.values.contains(where: { $0.channel == subscription.channel }),
            let listener
        else { return }
        let sql = "UNLISTEN \(quotedIdentifier(subscription.channel))"
        listener.submit(PostgresRequest(sql, isPrepared: false) { _ in })
    }

    func listenerOpened(_ connection: PostgresConnection) {
        listener = connection
        connection.onNotification = { channel, payload in
            self.assumeIsolated { $0.notified(channel, payload) }
        }
        for subscription in subscriptions.values { subscribe(subscription, on: connection) }
    }

    func listenerClosed(_ connection: PostgresConnection) {
        if listener === connection { listener = nil }
    }

    private func notified(_ channel: String, _ payload: String) {
        // A subscription that waits for its LISTEN gets no earlier notifications.
        for subscription in subscriptions.values
        where subscription.channel == channel && subscription.isListening {
            subscription.handler(payload)
        }
    }
}

/// One subscription, until it is cancelled.
package struct PostgresListener: Sendable {
    fileprivate let pool: PostgresPool
    fileprivate let id: Int

    /// Ends the subscription: the handler is not called any more.
    package func cancel() async { await pool.unsubscribe(id) }
}
