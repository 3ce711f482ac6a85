import EventLoop
import Gateway
import HTTPServer
import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents

/// The intake of Segment's and RudderStack's clients: batches and single calls. Success means accepted; an
/// invalid item becomes a dead letter, and the others are processed.
///
/// Its clients drop a request that is redirected, or answered with 400, 401, 403 or 413. They
/// repeat a request after a 429 with `Retry-After`. Each loop has one instance.
struct SegmentSurface: Surface {
    let intake: Intake

    static let batch = "/v1/batch"
    /// The limit that clients apply: 500 KB, decompressed.
    static let maximumBodyBytes = 500 * 1024
    /// The shortest time for which such clients wait.
    private static let retryAfterSeconds = "2"

    /// Batches, single calls, and the names that mobile and browser clients use. Clients for Ruby, Java and
    /// .NET call a batch an import.
    private static let calls: [(path: String, kind: SegmentItem.Kind?)] = [
        (batch, nil), ("/v1/b", nil), ("/v1/import", nil),
        ("/v1/track", .track), ("/v1/identify", .identify),
        ("/v1/group", .group), ("/v1/page", .page), ("/v1/screen", .screen),
        ("/v1/alias", .alias), ("/v1/t", .track), ("/v1/i", .identify), ("/v1/g", .group),
        ("/v1/p", .page), ("/v1/s", .screen), ("/v1/a", .alias),
    ]
    private static let paths = ExactStringSet(calls.map(\.path))

    func owns(_ request: HTTPServerRequest) -> Bool {
        Self.paths.contains(IngestPath.plain(request.path))
    }

    var cors: CORS? {
        CORS(
            Self.calls.map(\.path).flatMap(IngestPath.variants),
            methods: "POST",
            headers: IngestPath.allowedHeaders,
            exposed: "Retry-After"
        )
    }

    var routes: [SurfaceRoute] {
        Self.calls.flatMap { path, kind in
            IngestPath.routes(
                path,
                maximumBodyBytes: Self.maximumBodyBytes,
                RouteDescription(
                    "Take in a call of Segment's, or a batch of them",
                    for: IngestPath.senders,
                    body: .json(["type": "object"]),
                    answers: [.init(200, "Kafka has it", .json(named: "Segment"))],
                    refusal: .json(named: "SegmentError")
                )
            ) { request, context in try await take(request, context, kind) }
        }
    }

    func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem? {
        request.method == .post && intake.isUnderPressure ? HTTPProblem.underPressure : nil
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        refusal == .wrongMethod ? error(.oneWay) : error(HTTPProblem(refusal))
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        HTTPProblem(ofIntake: error).map(self.error)
    }

    /// Returns `{"code", "message"}`. A temporary error is 429: after a 503 its clients ignore `Retry-After`.
    private func error(_ problem: HTTPProblem) -> HTTPServerResponse {
        let status = problem.status == 503 ? 429 : problem.status
        var response = HTTPServerResponse.json(
            [
                "code": .string(Self.code(status)),
                "message": .string(
                    problem.detail.isEmpty ? statusText(problem.status) : problem.detail
                ),
            ],
            status: status
        )
        for field in problem.headers { response.headers[field.name] = field.value }
        if status == 429, response.headers["Retry-After"] == nil {
            response.headers["Retry-After"] = Self.retryAfterSeconds
        }
        return response
    }

    private static func code(_ status: Int) -> String {
        switch status {
        case 400: "invalid_request"
        case 401: "unauthorized"
        case 404: "not_found"
        case 405: "method_not_allowed"
        case 413: "payload_too_large"
        case 415: "unsupported_encoding"
        case 429: "too_many_requests"
        case 500...: "internal_error"
        default: "refused"
        }
    }

    // MARK: Accepting

    private func take(
        _ request: HTTPServerRequest,
        _ context: RequestContext,
        _ kind: SegmentItem.Kind?
    ) async throws -> HTTPServerResponse {
        let caller = try await admit(request, context)
        let admitted = try AdmittedRequest(request, intake, of: caller)
        var request = request
        let batch = try await intake.read(&request, admitted) { body in
            try SegmentBatch(body, kind)
        }
        try admitted.begin(
            objects: batch.count,
            textBytes: request.body.count + batch.sharedBytes
        )
        var write = IntakeWrite()
        let types = try await types(of: caller)
        let objects = try await check(batch, kind, types, admitted, into: &write)
        try await intake.write(
            write,
            objects: objects,
            for: &request,
            admitted
        )
        return .json(["success": true])
    }

    /// Authenticates by the headers, or, if they name no key, by the body's `writeKey`, where browsers send
    /// it. A bearer token belongs to Segment's own OAuth and names no key.
    private func admit(_ request: HTTPServerRequest, _ context: RequestContext) async throws
        -> Caller
    {
        let authorization = request.header("authorization") ?? ""
        let namesKey =
            !authorization.isEmpty && !authorization.lowercased().hasPrefix("bearer ")
            || ["x-lc-id", "x-lc-key", "x-lc-sign"].contains { request.header($0) != nil }
        if namesKey { return try await context.admit(key: request) }
        let words = try BodyCredentials(
            request,
            named: ["writeKey"],
            requireBodySearchAllowed: context.requireBodySearchAllowed
        )
        guard let key = words?.text("writeKey"), !key.isEmpty else { throw context.refusal() }
        return try await context.admit(Proof(appKey: key))
    }

    private func types(of caller: Caller) async throws -> [SegmentItem.Kind: KnownType] {
        var types: [SegmentItem.Kind: KnownType] = [:]
        for kind in SegmentItem.Kind.allCases {
            types[kind] = try await intake.type(kind.type.rawValue, of: caller)
        }
        return types
    }

    /// - Returns: The number of objects among the records; the others are dead letters.
    private func check(
        _ batch: SegmentBatch,
        _ kind: SegmentItem.Kind?,
        _ types: [SegmentItem.Kind: KnownType],
        _ admitted: AdmittedRequest,
        into write: inout IntakeWrite
    ) async throws -> Int {
        let caller = admitted.caller
        var work = try await admitted.beginWork()
        let (now, checker) = (Instant.now(), SchemaChecker())
        var objects = 0
        for index in 0..<batch.count {
            try await work.yieldIfDue()
            let call = batch.item(index)
            do throws(RefusedObject) {
                let item = try SegmentItem(try call.get(), kind)
                guard let type = types[item.kind] else { continue }
                let reader = ObjectReader(type: type, checker: checker)
                let (id, kept) = try reader.read(.object(batch.completed(item.object)))
                write.singles.append(
                    KafkaOutgoing(
                        topic: intake.topics.ingest(type.name),
                        key: Array(id.utf8),
                        value: JSONValue.object(kept).bytes,
                        headers: Intake.headers(
                            app: caller.appID,
                            version: type.version,
                            receivedAt: now
                        )
                    )
                )
                objects += 1
            } catch {
                intake.metrics.refused(.segmentItem)
                // The item gets the shared fields of its batch, so that it is complete when it is
                // replayed.
                let item = (try? call.get()).map { item in
                    item.object.map { .object(batch.completed($0)) } ?? item
                }
                let content = item.map(Intake.withoutKey) ?? batch.unread(index)
                write.singles.append(intake.deadLetter(content, error, caller))
            }
        }
        return objects
    }
}
