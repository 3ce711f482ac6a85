internal import Compression
internal import JSON
internal import Synchronization

/// A request whose handler is to run, with what the answer's record needs.
/// Confined to its loop, as its handler's task is but for the handler itself.
final class RequestInProgress: @unchecked Sendable {
    private(set) var request: HTTPServerRequest
    let match: Router.Match
    private let server: ServerLoop
    private var response = HTTPServerResponse(status: 500)
    let startedAt = ContinuousClock.now
    /// Never refused: who fills the budget with large bodies must not shut out small ones, which the
    /// number of connections bounds.
    private static let smallBody = 16 * 1024
    /// What its body has taken of the loop's budget.
    private var heldBytes = 0

    init(_ request: consuming HTTPServerRequest, _ server: ServerLoop) {
        match = server.router.match(request.method, request.pathSegments)
        if case .route(_, let parameters) = match { request.pathParameters = parameters }
        request.caller = CallerPresence(at: server)
        self.request = request
        self.server = server
    }

    deinit { server.heldBodyBytes.subtract(heldBytes, ordering: .relaxed) }

    /// Counts what there is of the body now.
    ///
    /// - Throws: 503 when there is no room for it beside those of other requests.
    func hold(_ bytes: Int) throws(HTTPProblem) {
        let more = bytes - heldBytes
        if more == 0 { return }
        let all = server.heldBodyBytes.add(more, ordering: .relaxed).newValue
        heldBytes = bytes
        guard more > 0, bytes > Self.smallBody, all > server.configuration.maximumHeldBodyBytes
        else { return }
        throw HTTPProblem(
            status: 503,
            detail: "too many bodies are being handled",
            headers: ["Retry-After": "1"]
        )
    }

    /// Lets go of the body, once the handler has ended or will not run.
    func dropBody() {
        if heldBytes == 0 { return }
        request.body = []
        server.heldBodyBytes.subtract(heldBytes, ordering: .relaxed)
        heldBytes = 0
    }

    /// Takes over the answer, once `runHandler` has returned.
    func takeResponse() -> HTTPServerResponse {
        request.caller.letGo()
        defer { response = HTTPServerResponse(status: 500) }
        return response
    }

    func runHandler() async {
        guard case .route(let route, _) = match else { return refuse() }
        do {
            guard request.headers.allSatisfy({ MarkRun.isWithin($0.value) }) else {
                throw HTTPProblem(
                    status: 400,
                    detail: "a header has too many combining marks in a row"
                )
            }
            response = try await route.handler(request)
        } catch {
            fail(error)
        }
    }

    // Inlined, each would have copies of the request in the frame of every request, and a task that
    // needs more than its first kilobyte asks for another.
    @inline(never)
    private func refuse() {
        response = server.router.refusal(of: request, by: match)
    }

    @inline(never)
    private func fail(_ error: any Error) {
        guard case .route(let route, _) = match else { return refuse() }
        response = server.router.failure(error, of: request, at: route)
    }

    /// Gives the request its body, as its sender meant it: without its `Content-Encoding`.
    ///
    /// - Parameters:
    ///   - bytes: The body as it came.
    ///   - maximumBytes: The bound of what it inflates to.
    /// - Throws: 503 as `hold`, 413 beyond the bound, 415 for a coding that is not ours, or more than one, 400 for
    ///   broken bytes.
    func takeBody(_ bytes: [UInt8], maximumBytes: Int) throws(HTTPProblem) {
        try hold(bytes.count)
        request.body = bytes
        guard !bytes.isEmpty, case .route = match,
            request.headers.contains("content-encoding")
        else { return }
        let codings = request.headers.all("content-encoding")
        if codings.count == 1, equalWithoutCase(codings[0], "identity") { return }
        guard codings.count == 1, let coding = Compression(contentCoding: codings[0]) else {
            throw HTTPProblem(
                status: 415,
                detail: "the body may be gzip or zstd, once",
                headers: ["Accept-Encoding": "gzip, zstd"]
            )
        }
        do throws(CompressionError) {
            request.body = try coding.decompress(bytes, maximumBytes: maximumBytes)
        } catch {
            switch error {
            case .tooLarge:
                throw HTTPProblem(
                    status: 413,
                    detail: "the body inflates to more than \(maximumBytes) bytes"
                )
            case .broken:
                throw HTTPProblem(status: 400, detail: "the body is not \(coding.rawValue)")
            case .unavailable:
                throw HTTPProblem(status: 503, detail: "the body cannot be inflated now")
            }
        }
        try hold(request.body.count)
        request.headers.remove("content-encoding")
        request.headers["content-length"] = String(request.body.count)
    }
}
