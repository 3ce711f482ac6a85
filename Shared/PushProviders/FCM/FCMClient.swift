internal import HTTPTransport
internal import PushCore

/// FCM for one service account. It shares its connections with the other accounts: FCM identifies a
/// request only by its bearer token.
final class FCMClient: ProviderClient, @unchecked Sendable {
    private let path: String
    private let tokens: AccessTokenSource
    private let pool: HTTP2Pool
    private let timeout: Duration
    private let clock: () -> Instant
    private var heads: RequestHeadCache
    private var isClosed = false
    private var withdrawals = 0
    private(set) var deliveriesInside = 0

    /// - Parameters:
    ///   - credential: The credential of the project.
    ///   - origin: The origin of FCM.
    ///   - tokens: The token source of the credential.
    ///   - pool: Shared connections to the origin; their owner closes them.
    ///   - timeout: The time from hand-over to answer.
    ///   - clock: The time for `Retry-After` and the remaining time.
    init(
        _ credential: FCMCredential,
        origin: HTTP2Origin,
        tokens: AccessTokenSource,
        pool: HTTP2Pool,
        timeout: Duration,
        clock: @escaping () -> Instant
    ) {
        path = "/v1/projects/\(credential.projectID)/messages:send"
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
        pool.withdraw(of: ObjectIdentifier(self))
    }

    func close() { isClosed = true }

    /// Does nothing: this client does not own its connections.
    func closeAfterLastDelivery() {}

    private func finish(_ batch: DeliveryBatch, _ index: Int, _ answer: ProviderAnswer) {
        deliveriesInside -= 1
        batch.complete(index, answer)
    }

    private func start(_ batch: DeliveryBatch, _ indices: [Int], isRepeat: Bool) {
        var usable: [Int] = []
        usable.reserveCapacity(indices.count)
        for index in indices {
            let token = batch.notifications[index].target.token
            if isClosed {
                finish(batch, index, ProviderAnswer(.notSent, reason: "closed"))
            } else if DeviceToken.problem(token, for: .fcm) != nil {
                finish(
                    batch,
                    index,
                    ProviderAnswer(.rejected, reason: LocalFailure.malformedToken.rawValue)
                )
            } else {
                usable.append(index)
            }
        }
        guard !usable.isEmpty else { return }
        tokens.withToken { [self, usable] result in
            switch result {
            case .failure(let refusal):
                for index in usable { finish(batch, index, refusal.answer) }
            case .success where batch.round != withdrawals:
                let answer = ProviderAnswer(.notSent, reason: "withdrawn")
                for index in usable { finish(batch, index, answer) }
            case .success(let bearer): send(batch, usable, bearer, isRepeat: isRepeat)
            }
        }
    }

    private func send(
        _ batch: DeliveryBatch,
        _ indices: [Int],
        _ bearer: String,
        isRepeat: Bool
    ) {
        let (now, timeLeft) = (clock(), batch.timeLeft())
        var last: (headers: [RenderedPayload.Header], head: HTTP2RequestHead)?
        var requests = HTTP2Requests(
            count: indices.count,
            textBytes: 1024,
            answerTime: batch.answerTime
        )
        var sent: [Int] = []
        sent.reserveCapacity(indices.count)
        for index in indices {
            let notification = batch.notifications[index]
            let headers = notification.payload.headers
            do throws(HTTPTransportError) {
                let head =
                    if let last, last.headers == headers { last.head } else {
                        try heads.head(FCMRequest.headers(notification, bearer: bearer))
                    }
                last = (headers, head)
                requests.add(
                    head,
                    path: path,
                    body: FCMRequest.body(notification, at: now),
                    timeout: timeLeft,
                    isUrgent: notification.isUrgent
                )
                sent.append(index)
            } catch {
                finish(batch, index, ProviderAnswer(error))
            }
        }
        pool.send(requests, of: ObjectIdentifier(self)) { [self, sent] number, result in
            let index = sent[number]
            switch result {
            case .failure(let error): finish(batch, index, ProviderAnswer(error))
            case .success(let response):
                // The headers of a successful response are not needed.
                let response =
                    response.status == 200
                    ? HTTPResponse(status: 200, body: response.body) : response.whole
                let classified = FCMAnswer.classify(response, at: clock())
                let mayRepeat = !isRepeat && !isClosed && batch.round == withdrawals
                if classified.wantsRenewal, mayRepeat {
                    tokens.discard(bearer)
                    start(batch, [index], isRepeat: true)
                } else {
                    finish(batch, index, classified.answer)
                }
            }
        }
    }
}
