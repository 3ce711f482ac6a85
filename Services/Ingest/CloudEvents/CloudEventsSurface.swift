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
        try intake.checkQuota(caller)
        let mode = try Self.mode(of: request)
        var request = request
        try await request.decodeBody(of: intake)
        try await intake.turns.begin(caller.appID)
        let events = try Self.events(of: request, mode)
        let write = try await check(events, caller)
        try await intake.write(
            write,
            objects: write.recordCount,
            for: &request,
            of: caller
        )
        return .empty(204)
    }

    private enum Mode { case binary, structured, batched }

    /// - Throws: 415 for what is no event, or one in another format than JSON.
    private static func mode(of request: HTTPServerRequest) throws -> Mode {
        let type = request.mediaType
        if type.hasPrefix("application/cloudevents-batch") {
            guard type == "application/cloudevents-batch+json" else { throw otherFormat }
            return .batched
        }
        if type.hasPrefix("application/cloudevents") {
            guard type == "application/cloudevents+json" || type == "application/cloudevents" else {
                throw otherFormat
            }
            return .structured
        }
        if request.header("ce-specversion") != nil || request.header("ce-id") != nil {
            return .binary
        }
        throw otherFormat
    }

    private static let otherFormat = HTTPProblem(
        status: 415,
        detail: "an event has headers ce-id, ce-source, ce-type and ce-specversion, or is"
            + " application/cloudevents+json, or several application/cloudevents-batch+json"
    )

    /// One by one, or why one is none.
    private static func events(
        of request: HTTPServerRequest,
        _ mode: Mode
    ) throws -> [Result<IncomingEvent, RefusedObject>] {
        func read(
            _ event: () throws(RefusedObject) -> IncomingEvent
        ) -> Result<IncomingEvent, RefusedObject> {
            do throws(RefusedObject) { return .success(try event()) } catch {
                return .failure(error)
            }
        }
        if mode == .binary {
            return [read { () throws(RefusedObject) in try IncomingEvent(binary: request) }]
        }
        let value = try JSONValue.parse(
            request.body,
            maximumDepth: ObjectLimits.levelsOfBody,
            maximumValues: ObjectLimits.valuesOfBody
        )
        guard mode == .batched else {
            return [read { () throws(RefusedObject) in try IncomingEvent(structured: value) }]
        }
        guard let elements = value.array else {
            throw HTTPProblem(status: 400, detail: "a batch must be an array of events")
        }
        guard elements.count <= ObjectLimits.objects else {
            throw HTTPProblem(
                status: 413,
                detail: "a batch has at most \(ObjectLimits.objects) events"
            )
        }
        return elements.map { element in
            read { () throws(RefusedObject) in try IncomingEvent(structured: element) }
        }
    }

    /// - Throws: `RefusedEvents` where any cannot be kept: then none is.
    private func check(
        _ events: [Result<IncomingEvent, RefusedObject>],
        _ caller: Caller
    ) async throws -> IntakeWrite {
        var write = IntakeWrite()
        var refused = RefusedEvents()
        let (now, checker) = (Instant.now(), SchemaChecker())
        var work = FairWork(of: caller.appID, in: intake.turns)
        for (index, event) in events.enumerated() {
            try await work.breathe()
            let type: KnownType
            do {
                type = try await intake.type(try event.get().type, of: caller)
            } catch IntakeRefusal.unknownType {
                intake.figures.refused(.unknownType)
                refused.addUnknownType(at: index)
                continue
            } catch let error as RefusedObject {
                intake.figures.refused(.malformed)
                refused.add(error, at: index)
                continue
            }
            do throws(RefusedObject) {
                write.singles.append(try record(of: try event.get(), type, checker, caller, now))
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
        guard value.count <= ObjectLimits.bytes else {
            throw RefusedObject(
                id: id,
                pointer: "",
                reason: "an object has at most \(ObjectLimits.bytes) bytes"
            )
        }
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
    private var refused: [JSONValue] = []
    private var areTypesUnknown = false
    private var areOthersWrong = false

    var isEmpty: Bool { refused.isEmpty }

    mutating func add(_ object: RefusedObject, at index: Int) {
        areOthersWrong = true
        refused.append(NativeAnswer.json(object, at: index))
    }

    mutating func addUnknownType(at index: Int) {
        areTypesUnknown = true
        let object = RefusedObject(pointer: "/type", reason: "the app has no such type")
        refused.append(NativeAnswer.json(object, at: index))
    }

    /// 404 where all that is wrong is a type that nobody declared, else 400.
    var response: HTTPServerResponse {
        let status = areTypesUnknown && !areOthersWrong ? 404 : 400
        return .json(
            [
                "title": .string(statusText(status)), "status": JSONValue(status),
                "detail": "nothing of it is kept",
                "accepted": [], "duplicates": [], "refused": .array(refused),
            ],
            status: status,
            contentType: "application/problem+json"
        )
    }
}
