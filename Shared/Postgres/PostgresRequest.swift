/// One statement in flight. Confined to its pool's loop.
final class PostgresRequest: @unchecked Sendable {
    let sql: String
    let parameters: [PostgresValue]
    /// Whether it is prepared. BEGIN, COMMIT, ROLLBACK and the like are not worth a place in the
    /// cache.
    let isPrepared: Bool
    /// Whether the request commits: if the connection breaks, its commit may still have happened.
    let commits: Bool
    /// Whether it gets a group of its own.
    var runsAlone = false
    var runs = 0
    var isCancelled = false
    /// The time limit of a request that waits for a connection.
    var deadline: ContinuousClock.Instant?
    /// The connection while it is in flight; a strong reference, as a weak one is slower at each
    /// use.
    var connection: PostgresConnection?
    private var completion: ((Result<PostgresResult, any Error>) -> Void)?

    init(
        _ sql: String,
        _ parameters: [PostgresValue] = [],
        isPrepared: Bool = true,
        commits: Bool = true,
        completion: @escaping (Result<PostgresResult, any Error>) -> Void
    ) {
        self.sql = sql
        self.parameters = parameters
        self.isPrepared = isPrepared
        self.commits = commits
        self.completion = completion
    }

    var isFinished: Bool { completion == nil }

    func finish(_ result: Result<PostgresResult, any Error>) {
        let completion = completion
        self.completion = nil
        connection = nil
        completion?(result)
    }
}

/// Requests that one caller awaits together. Confined to the loop.
final class RequestBatch: @unchecked Sendable {
    private(set) var requests: [PostgresRequest] = []
    private var results: [PostgresResult]
    private var error: (any Error)?
    private var left: Int
    private var continuation: CheckedContinuation<[PostgresResult], any Error>?

    init(_ count: Int) {
        left = count
        results = Array(repeating: .empty, count: count)
    }

    func start(_ continuation: CheckedContinuation<[PostgresResult], any Error>) {
        self.continuation = continuation
    }

    /// Adds a request; `make` gets its completion.
    func add(
        _ make: (@escaping (Result<PostgresResult, any Error>) -> Void) -> PostgresRequest
    ) -> PostgresRequest {
        let index = requests.count
        let request = make { self.finished(index, $0) }
        requests.append(request)
        return request
    }

    private func finished(_ index: Int, _ result: Result<PostgresResult, any Error>) {
        left -= 1
        switch result {
        case .success(let value): results[index] = value
        case .failure(let failure): error = error ?? failure
        }
        guard left == 0 else { return }
        if let error {
            continuation?.resume(throwing: error)
        } else {
            continuation?.resume(returning: results)
        }
        continuation = nil
    }
}
