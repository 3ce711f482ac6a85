import Door
import EventLoop
import HTTPServer
import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents
import PushStorage

/// CloudEvents 1.0 over HTTP, at `/events`: binary, structured and batched, with the handshake of
/// webhooks. An event's `type` is a declared type, its `data` the object.
///
/// Success is 204. A batch is kept whole or not at all. One value a loop.
struct CloudEventsSurface: Surface {
    let intake: Intake

    static let path = "/events"

    func owns(_ request: HTTPServerRequest) -> Bool {
        IngestPath.plain(request.path) == Self.path
    }

    /// What browsers ask first is answered with what webhooks ask: both by OPTIONS.
    var cors: CORS? {
        CORS([], methods: "POST", headers: IngestPath.allowedHeaders, exposed: "Retry-After")
    }

    var routes: [SurfaceRoute] {
        IngestPath.variants(Self.path).flatMap { pattern in
            [
                SurfaceRoute(
                    .post,
                    pattern,
                    action: pattern == Self.path ? nil : "POST \(Self.path)",
                    maximumBodyBytes: ObjectLimits.bodyBytes,
                    handler: .anybody(take)
                ),
                SurfaceRoute(
                    .options,
                    pattern,
                    action: pattern == Self.path ? nil : "OPTIONS \(Self.path)",
                    handler: .anybody { request, _ in Self.handshake(request) }
                ),
            ]
        }
    }

    func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem? {
        request.method == .post && intake.isUnderPressure ? HTTPProblem.underPressure : nil
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        .problem(refusal == .wrongMethod ? .oneWay : HTTPProblem(refusal))
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        if let refused = error as? RefusedEvents { return refused.response }
        return HTTPProblem(ofIntake: error).map(HTTPServerResponse.problem)
    }

    /// Whoever asks may send, at any rate: keys and quotas say the rest.
    private static func handshake(_ request: HTTPServerRequest) -> HTTPServerResponse {
        var headers: HTTPHeaders = [
            "Allow": IngestPath.allowed,
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": IngestPath.allowedHeaders,
            "Access-Control-Max-Age": "86400",
        ]
        if let origin = request.header("webhook-request-origin") {
            headers["WebHook-Allowed-Origin"] = origin
            headers["WebHook-Allowed-Rate"] = request.header("webhook-request-rate") ?? "*"
        }
        return HTTPServerResponse(status: 200, headers: headers)
    }

    // MARK: Taking

    private func take(
        _ request: HTTPServerRequest,
        _ visit: Visit
    ) async throws -> HTTPServerResponse {
        let caller = try await visit.admit(key: request)
        let mode = try EventBatch.mode(of: request)
        let admitted = try AdmittedRequest(request, intake, of: caller)
        var request = request
        let batch = try await intake.read(&request, admitted) { body in
            try EventBatch(body, mode)
        }
        try admitted.begin(objects: batch.count, textBytes: request.body.count)
        let write = try await check(batch, request, admitted)
        try await intake.write(
            write,
            objects: write.recordCount,
            for: &request,
            admitted
        )
        return .empty(204)
    }

    /// - Throws: `RefusedEvents` where any cannot be kept: then none is.
    private func check(
        _ batch: EventBatch,
        _ request: HTTPServerRequest,
        _ admitted: AdmittedRequest
    ) async throws -> IntakeWrite {
        guard batch.count > 0 else { return IntakeWrite() }
        let types = try await intake.types(of: admitted.caller)
        let caller = admitted.caller
        var work = try await admitted.beginWork()
        var (batch, write, refused) = (batch, IntakeWrite(), RefusedEvents())
        let (now, checker) = (Instant.now(), SchemaChecker())
        for index in 0..<batch.count {
            try await work.breathe()
            let event: IncomingEvent
            do throws(RefusedObject) {
                event = try batch.event(index, of: request)
            } catch {
                intake.figures.refused(.malformed)
                refused.add(error, at: index)
                continue
            }
            guard let type = types[event.type] else {
                intake.figures.refused(.unknownType)
                refused.addUnknownType(at: index)
                continue
            }
            do throws(RefusedObject) {
                write.singles.append(try record(of: event, type, checker, caller, now))
            } catch {
                intake.figures.refused(error)
                refused.add(error, at: index)
            }
        }
        if !refused.isEmpty { throw refused }
        return write
    }

    private func record(
        of event: IncomingEvent,
        _ type: KnownType,
        _ checker: SchemaChecker,
        _ caller: Caller,
        _ now: Instant
    ) throws(RefusedObject) -> KafkaOutgoing {
        let reader = ObjectReader(type: type, checker: checker, isExtended: event.isExtended)
        let (id, kept) = try reader.read(event.data) { event.objectID }
        let value = JSONValue.object(kept).bytes
        guard value.count <= ObjectLimits.bytes else { throw ObjectText.tooLarge(id) }
        let headers = Intake.headers(app: caller.appID, version: type.version, receivedAt: now)
        return KafkaOutgoing(
            topic: intake.topics.ingest(type.name),
            key: Array(id.utf8),
            value: value,
            headers: headers
                + event.attributes.map { KafkaHeader(name: "ce_" + $0.name, value: $0.value) }
        )
    }
}

/// Events of which nothing is kept, and why.
struct RefusedEvents: Error, Sendable {
    private var refused = RefusedList()
    private var areTypesUnknown = false
    private var areOthersWrong = false

    var isEmpty: Bool { refused.isEmpty }

    mutating func add(_ object: RefusedObject, at index: Int) {
        areOthersWrong = true
        refused.add(object, at: index)
    }

    mutating func addUnknownType(at index: Int) {
        areTypesUnknown = true
        let object = RefusedObject(pointer: "/type", reason: "the app has no such type")
        refused.add(object, at: index)
    }

    /// 404 where all that is wrong is a type that nobody declared, else 400.
    var response: HTTPServerResponse {
        let status = areTypesUnknown && !areOthersWrong ? 404 : 400
        let head = #"{"title":"\#(statusText(status))","status":\#(status),"#
        let lists = #""detail":"nothing of it is kept","accepted":[],"duplicates":[],"refused":"#
        var body = Array((head + lists).utf8)
        refused.write(into: &body)
        body.append(UInt8(ascii: "}"))
        return HTTPServerResponse(
            status: status,
            headers: ["Content-Type": "application/problem+json"],
            body: body
        )
    }
}
