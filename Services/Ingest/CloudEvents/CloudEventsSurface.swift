import EventLoop
import Gateway
import HTTPServer
import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents

/// CloudEvents 1.0 over HTTP, at `/events`: binary, structured and batched, with the handshake of
/// webhooks. An event's `type` is a declared type, its `data` the object.
///
/// The response is 204 if all events are stored. Otherwise the valid events of a batch are stored,
/// and a 400 names the others. Each loop has one instance.
struct CloudEventsSurface: Surface {
    let intake: Intake

    static let path = "/events"

    func owns(_ request: HTTPServerRequest) -> Bool {
        IngestPath.plain(request.path) == Self.path
    }

    /// A preflight request of a browser and the handshake of a webhook get the same response: both are
    /// OPTIONS.
    var cors: CORS? {
        CORS([], methods: "POST", headers: IngestPath.allowedHeaders, exposed: "Retry-After")
    }

    var routes: [SurfaceRoute] {
        IngestPath.routes(
            Self.path,
            maximumBodyBytes: ObjectLimits.bodyBytes,
            RouteDescription(
                "Take in CloudEvents: binary, structured or batched",
                for: IngestPath.senders,
                body: .init(
                    "application/cloudevents+json",
                    "application/cloudevents-batch+json"
                ),
                answers: [.init(204, "Kafka has it")]
            ),
            take
        )
            + IngestPath.variants(Self.path).map { pattern in
                SurfaceRoute(
                    .options,
                    pattern,
                    action: pattern == Self.path ? nil : "OPTIONS \(Self.path)",
                    handler: .unauthenticated { request, _ in Self.handshake(request) }
                )
            }
    }

    func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem? {
        request.method == .post && intake.isUnderPressure ? HTTPProblem.underPressure : nil
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        .problem(refusal == .wrongMethod ? .oneWay : HTTPProblem(refusal))
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        return HTTPProblem(ofIntake: error).map(HTTPServerResponse.problem)
    }

    /// Answers the handshake of a webhook: any sender is allowed, at any rate; keys and quotas set the
    /// limits.
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

    // MARK: Accepting

    private func take(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let caller = try await context.admit(key: request)
        let mode = try EventBatch.mode(of: request)
        let admitted = try AdmittedRequest(request, intake, of: caller)
        var request = request
        let batch = try await intake.read(&request, admitted) { body in
            try EventBatch(body, mode)
        }
        try admitted.begin(objects: batch.count, textBytes: request.body.count)
        var answer = EventsAnswer()
        let write = try await check(batch, request, admitted, &answer)
        try await intake.write(
            write,
            objects: write.recordCount,
            for: &request,
            admitted,
            answerBytes: answer.byteCount
        )
        return answer.response
    }

    /// Separates the events that can be stored from those that cannot.
    private func check(
        _ batch: EventBatch,
        _ request: HTTPServerRequest,
        _ admitted: AdmittedRequest,
        _ answer: inout EventsAnswer
    ) async throws -> IntakeWrite {
        guard batch.count > 0 else { return IntakeWrite() }
        let types = try await intake.types(of: admitted.caller)
        let caller = admitted.caller
        var work = try await admitted.beginWork()
        var (batch, write) = (batch, IntakeWrite())
        let (now, checker) = (Instant.now(), SchemaChecker())
        for index in 0..<batch.count {
            try await work.yieldIfDue()
            let event: IncomingEvent
            do throws(RefusedObject) {
                event = try batch.event(index, of: request)
            } catch {
                intake.metrics.refused(.malformed)
                answer.refuse(error, at: index)
                continue
            }
            guard let type = types[event.type] else {
                intake.metrics.refused(.unknownType)
                answer.refuseUnknownType(at: index)
                continue
            }
            do throws(RefusedObject) {
                let (id, record) = try record(of: event, type, checker, caller, now)
                if answer.accept(id) { write.singles.append(record) }
            } catch {
                intake.metrics.refused(error)
                answer.refuse(error, at: index)
            }
        }
        return write
    }

    private func record(
        of event: IncomingEvent,
        _ type: KnownType,
        _ checker: SchemaChecker,
        _ caller: Caller,
        _ now: Instant
    ) throws(RefusedObject) -> (id: String, record: KafkaOutgoing) {
        let reader = ObjectReader(type: type, checker: checker, isExtended: event.isExtended)
        let (id, kept) = try reader.read(event.data) { event.objectID }
        let value = JSONValue.object(kept).bytes
        guard value.count <= ObjectLimits.bytes else { throw ObjectText.tooLarge(id) }
        let headers = Intake.headers(app: caller.appID, version: type.version, receivedAt: now)
        let record = KafkaOutgoing(
            topic: intake.topics.ingest(type.name),
            key: Array(id.utf8),
            value: value,
            headers: headers
                + event.attributes.map { KafkaHeader(name: "ce_" + $0.name, value: $0.value) }
        )
        return (id, record)
    }
}

/// The response to a request: which of its events are stored, and why the others are not.
struct EventsAnswer: Sendable {
    private var objects = NativeAnswer()
    private var areTypesUnknown = false
    private var areOthersWrong = false

    var byteCount: Int { objects.byteCount }

    /// - Returns: Whether the event is the first with its id in this request.
    mutating func accept(_ id: String) -> Bool { objects.accept(id) }

    mutating func refuse(_ object: RefusedObject, at index: Int) {
        areOthersWrong = true
        objects.refuse(object, at: index)
    }

    mutating func refuseUnknownType(at index: Int) {
        areTypesUnknown = true
        objects.refuse(
            RefusedObject(pointer: "/type", reason: "the app has no such type"),
            at: index
        )
    }

    /// 204 if all events are stored. Else 400, or 404 if unknown types are the only error, with the lists of
    /// the native response.
    var response: HTTPServerResponse {
        guard areTypesUnknown || areOthersWrong else { return .empty(204) }
        let status = areTypesUnknown && !areOthersWrong ? 404 : 400
        let detail = "the events in `refused` are not stored; a repeat is refused again"
        let head =
            #"{"title":"\#(statusText(status))","status":\#(status),"detail":"\#(detail)","#
        return HTTPServerResponse(
            status: status,
            headers: ["Content-Type": "application/problem+json"],
            body: objects.body(after: head)
        )
    }
}
