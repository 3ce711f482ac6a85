internal import HTTPTransport
internal import Observability
internal import PushCore

/// APNs for one credential in one environment.
///
/// With a provider token, APNs allows only one request on a new connection until it has seen a
/// valid token. The pool ensures that.
final class APNsClient: ProviderClient, @unchecked Sendable {
    /// The common part of one push's requests. Pushes share a head if only the values of their own
    /// headers differ.
    private struct Form {
        var payloadHeaders: [RenderedPayload.Header]
        var topic: String?
        var expiration: Int64?
        var bearer: String?
        var head: HTTP2RequestHead
        var values: [String]

        /// Whether the head also fits this notification.
        func isHead(of notification: OutgoingNotification, _ bearer: String?) -> Bool {
            let headers = notification.payload.headers
            guard self.bearer == bearer, topic == notification.apnsTopic,
                (expiration == nil) == (notification.expiration == nil),
                payloadHeaders.count == headers.count
            else { return false }
            for (one, other) in zip(payloadHeaders, headers)
            where one.name != other.name
                || one.value != other.value && !APNsRequest.isOwn(one.name)
            {
                return false
            }
            return true
        }
    }

    private let credential: APNsCredential
    private let tokens: APNsTokenSource?
    private let pool: HTTP2Pool
    private let timeout: Duration
    private let clock: DatabaseClock
    private var heads: RequestHeadCache
    private var form: Form?
    private var isClosed = false
    private var isRetiring = false
    private var withdrawals = 0
    private(set) var deliveriesInside = 0

    /// - Parameters:
    ///   - credential: The sender's credential.
    ///   - origin: The origin of the environment.
    ///   - tokens: The token source of team and key, if the credential is a key.
    ///   - pool: Connections to the origin, for this client only: APNs binds a connection to a
    ///     team, a key and their topics.
    ///   - timeout: The time from hand-over to answer.
    ///   - clock: The time for `Retry-After`; also notified if APNs rejects a token for its time.
    init(
        _ credential: APNsCredential,
        origin: HTTP2Origin,
        tokens: APNsTokenSource?,
        pool: HTTP2Pool,
        timeout: Duration,
        clock: DatabaseClock
    ) {
        self.credential = credential
        self.tokens = tokens
        self.pool = pool
        self.timeout = timeout
        self.clock = clock
        heads = RequestHeadCache(origin: origin)
    }

    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        deliveriesInside += deliveries.count
        let batch = DeliveryBatch(
            deliveries,
            round: withdrawals,
            timeout: timeout,
            completion: completion
        )
        start(batch, Array(deliveries.indices), isRepeat: false)
    }

    func withdrawAll() {
        withdrawals += 1
        pool.withdraw()
    }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        pool.close()
    }

    func closeAfterLastDelivery() {
        isRetiring = true
        if deliveriesInside == 0 { close() }
    }

    private func finish(_ batch: DeliveryBatch, _ index: Int, _ answer: ProviderAnswer) {
        deliveriesInside -= 1
        batch.complete(index, answer)
        if deliveriesInside == 0, isRetiring { close() }
    }

    private func start(_ batch: DeliveryBatch, _ indices: [Int], isRepeat: Bool) {
        let bearer: String?
        do {
            bearer = isClosed ? nil : try tokens?.token()
        } catch {
            let answer = ProviderAnswer(
                .misconfigured,
                reason: LocalFailure.keyDoesNotSign.rawValue
            )
            for index in indices { finish(batch, index, answer) }
            return
        }
        var requests = HTTP2Requests(count: indices.count, answerTime: batch.answerTime)
        let timeLeft = batch.timeLeft()
        var sent: [Int] = []
        sent.reserveCapacity(indices.count)
        for index in indices {
            if let refusal = add(batch.notifications[index], bearer, timeLeft, to: &requests) {
                finish(batch, index, refusal)
            } else {
                sent.append(index)
            }
        }
        pool.send(requests) { [self, sent] number, result in
            finished(batch, sent[number], result, bearer: bearer, isRepeat: isRepeat)
        }
    }

    /// - Returns: The answer if the notification cannot be sent.
    private func add(
        _ notification: OutgoingNotification,
        _ bearer: String?,
        _ timeLeft: Duration,
        to requests: inout HTTP2Requests
    ) -> ProviderAnswer? {
        guard !isClosed else { return ProviderAnswer(.notSent, reason: "closed") }
        guard DeviceToken.problem(notification.target.token, for: .apns) == nil else {
            return ProviderAnswer(.rejected, reason: LocalFailure.malformedToken.rawValue)
        }
        do throws(HTTPTransportError) {
            let form = try form(for: notification, bearer)
            requests.add(
                form.head,
                path: APNsRequest.path,
                notification.target.token,
                value: notification.notificationID,
                values: form.values,
                body: notification.payload.body,
                timeout: timeLeft,
                isUrgent: notification.isUrgent
            )
            return nil
        } catch {
            return ProviderAnswer(error)
        }
    }

    /// Returns the form of a notification. In most cases it is the previous one, as the requests of
    /// a broadcast differ only in their tokens.
    private func form(
        for notification: OutgoingNotification,
        _ bearer: String?
    ) throws(HTTPTransportError) -> Form {
        if var form, form.isHead(of: notification, bearer) {
            guard
                form.payloadHeaders != notification.payload.headers
                    || form.expiration != notification.expiration
            else { return form }
            form.payloadHeaders = notification.payload.headers
            form.expiration = notification.expiration
            form.values = APNsRequest.own(notification).map(\.value)
            self.form = form
            return form
        }
        let headers = APNsRequest.headers(notification, topic: credential.topic, bearer: bearer)
        let names = ["apns-id"] + headers.own.map(\.name)
        let form = Form(
            payloadHeaders: notification.payload.headers,
            topic: notification.apnsTopic,
            expiration: notification.expiration,
            bearer: bearer,
            head: try heads.head(headers.shared, varying: names),
            values: headers.own.map(\.value)
        )
        self.form = form
        return form
    }

    private func finished(
        _ batch: DeliveryBatch,
        _ index: Int,
        _ result: Result<HTTP2Response, HTTPTransportError>,
        bearer: String?,
        isRepeat: Bool
    ) {
        switch result {
        case .failure(let error): finish(batch, index, ProviderAnswer(error))
        case .success(let response) where response.status == 200:
            let sent = batch.notifications[index].notificationID
            let name = response.header("apns-id", expected: sent)
            let answer = ProviderAnswer(.accepted, status: 200, providerMessageID: name)
            finish(batch, index, answer)
        case .success(let response):
            let notification = batch.notifications[index]
            let classified = APNsAnswer.classify(
                response.whole,
                environmentIsExplicit: notification.target.environmentIsExplicit,
                topicIsExplicit: notification.apnsTopicIsExplicit,
                clockIsInDoubt: clock.isInDoubt,
                at: clock.now()
            )
            let mayRepeat = !isRepeat && !isClosed && batch.round == withdrawals
            if react(classified, response.connection, bearer), mayRepeat {
                start(batch, [index], isRepeat: true)
            } else {
                // The first answer that a token is too old may be right: it does not blame the
                // clock.
                if classified.isOfTheClock, isRepeat || classified.reaction != .renewToken {
                    clock.refused(by: .apns)
                }
                finish(batch, index, classified.answer)
            }
        }
    }

    /// - Returns: Whether the notification may be sent once more.
    private func react(_ classified: APNsAnswer, _ connection: Int, _ bearer: String?) -> Bool {
        let reason = classified.answer.reason ?? "status \(classified.answer.status ?? 0)"
        switch classified.reaction {
        case .none: return false
        case .changeConnection:
            pool.retire(connection, because: reason)
            return false
        case .keepToken:
            tokens?.tooManyUpdates()
            pool.retire(connection, because: reason)
            return false
        case .renewToken:
            if let bearer { tokens?.expired(bearer) }
            pool.retire(connection, because: reason)
            return true
        case .changeConnectionAndRepeat:
            pool.retire(connection, because: reason)
            return true
        }
    }
}
