internal import JSON

/// A request until its response is written: the handler runs here, and the access log line gets its
/// data from here. Used on its loop only; just the route's handler may run elsewhere.
final class RequestInProgress: @unchecked Sendable {
    private(set) var request: HTTPServerRequest
    let match: Router.Match
    private let server: ServerLoop
    private var response = HTTPServerResponse(status: 500)
    let startedAt = ContinuousClock.now
    private let heldBody: BudgetedBody
    /// The asynchronous rest of an immediate handler.
    private var rest: (@Sendable () async throws -> HTTPServerResponse)?

    init(_ request: consuming HTTPServerRequest, _ server: ServerLoop) {
        match = server.router.match(request.method, request.pathSegments)
        if case .route(_, let parameters) = match { request.pathParameters = parameters }
        request.caller = ClientPresence(on: server.loop, gathering: server.gatheredBytes)
        heldBody = BudgetedBody(
            maximumBytes: match.maximumBodyBytes ?? server.configuration.maximumBodyBytes,
            of: server.heldBodyBytes,
            server.instruments
        )
        request.heldBody = heldBody
        self.request = request
        self.server = server
        unsafe heldBody.whenDropped = { [weak self] in self?.request.body = [] }
    }

    /// The limit of its body, and of the inflated size.
    var maximumBodyBytes: Int { heldBody.maximumBytes }

    /// Whether the handler takes the body while it arrives.
    var streamsBody: Bool {
        guard case .route(let route, _) = match else { return false }
        return route.streamsBody
    }

    /// Gives the handler the body that arrives.
    func makeBodyReader() -> HTTPBodyReader {
        let reader = HTTPBodyReader(
            maximumBytes: maximumBodyBytes,
            bodyTimeout: server.configuration.bodyTimeout,
            on: server.loop
        )
        request.bodyReader = reader
        return reader
    }

    /// Counts the present size of the body.
    ///
    /// - Throws: 503 if there is no room for it beside the bodies of other requests.
    func hold(_ bytes: Int) throws(HTTPProblem) { try heldBody.hold(bytes) }

    /// Drops the body, once the handler has ended or will not run.
    func dropBody() {
        request.body = []
        heldBody.releaseBytes()
    }

    /// Drops all of the request that its log line does not need: its response may take days.
    func forgetRequest() {
        request.headers = [:]
        request.query = []
        request.path = ""
        request.pathSegments = []
        request.pathParameters = [:]
        request.rawTarget = ""
    }

    /// Takes the response, once `runHandler` has returned.
    func takeResponse() -> HTTPServerResponse {
        request.caller.releaseBytes()
        defer { response = HTTPServerResponse(status: 500) }
        return response
    }

    /// Lets the handler respond at once, if it can. On the loop.
    ///
    /// - Returns: False if it has to be awaited: `runHandler` continues from there.
    func answerAtOnce() -> Bool {
        guard case .route(let route, _) = match, let prompt = route.prompt else { return false }
        do {
            try checkHeaders()
            switch try prompt(request) {
            case .now(let response) where response.stream == nil: self.response = response
            case .now(let response):
                rest = { response }
                return false
            case .later(let rest):
                self.rest = rest
                return false
            }
        } catch {
            fail(error)
        }
        return true
    }

    func runHandler() async {
        guard case .route(let route, _) = match else { return refuse() }
        do {
            if let rest {
                self.rest = nil
                response = try await rest()
            } else {
                try checkHeaders()
                response = try await route.handler(request)
            }
        } catch {
            fail(error)
        }
    }

    private func checkHeaders() throws(HTTPProblem) {
        guard request.headers.allSatisfy({ CombiningMarkRun.isWithin($0.value) }) else {
            throw HTTPProblem(
                status: 400,
                detail: "a header has too many combining marks in a row"
            )
        }
    }

    // These two are not inlined: each would put a copy of the request into the task of every request,
    // and a task with more than a kilobyte of locals allocates memory once more.
    @inline(never)
    private func refuse() {
        response = server.router.refusal(of: request, by: match)
    }

    @inline(never)
    private func fail(_ error: any Error) {
        guard case .route(let route, _) = match else { return refuse() }
        response = server.router.failure(error, of: request, at: route)
    }

    /// Gives the request its body. It is decompressed, unless the router's handlers do that themselves.
    ///
    /// - Throws: 503 if there is no room for it beside the bodies of other requests; as
    ///   `decodeBody`.
    func takeBody(_ bytes: [UInt8]) throws(HTTPProblem) {
        try hold(bytes.count)
        request.body = bytes
        guard case .route = match, !server.router.givesBodiesAsSent else { return }
        try request.undoBodyCoding()
        try hold(request.body.count)
    }
}
