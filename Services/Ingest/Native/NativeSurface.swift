import EventLoop
import Gateway
import HTTPServer
import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents

/// Carillon's own intake, `/v1/ingest/<type>`: one object, an array, or one object a line. The
/// response names the accepted and the refused objects, so that a device knows which ones it may
/// delete.
///
/// Each loop has one instance.
struct NativeSurface: Surface {
    let intake: Intake

    static let pattern = "/v1/ingest/:type"

    func owns(_ request: HTTPServerRequest) -> Bool {
        let path = IngestPath.plain(request.path)
        return path.hasPrefix("/v1/ingest/") || path == "/v1/ingest"
    }

    var cors: CORS? {
        CORS(
            IngestPath.variants(Self.pattern),
            methods: "POST",
            headers: IngestPath.allowedHeaders,
            exposed: "Retry-After"
        )
    }

    var routes: [SurfaceRoute] {
        IngestPath.routes(
            Self.pattern,
            maximumBodyBytes: ObjectLimits.bodyBytes,
            RouteDescription(
                "Take in one object, an array, or one a line",
                for: IngestPath.senders,
                body: .init("application/json", "application/x-ndjson"),
                answers: [.init(200, "Kafka has it", .json(named: "Answer"))]
            ),
            take
        )
    }

    /// The schemas of the responses of all surfaces but Realm's.
    static let schemas: JSONObject = {
        let text: JSONValue = ["type": "string"]
        let refused = JSONValue.schema(
            ofArray: .schema(
                ofObject: ["index": ["type": "integer"], "pointer": text, "reason": text],
                optional: ["_id": text]
            )
        )
        return [
            "Answer": .schema(ofObject: [
                "accepted": .schema(ofArray: text), "duplicates": .schema(ofArray: text),
                "refused": refused,
            ]),
            "Problem": .schema(
                ofObject: ["title": text, "status": ["type": "integer"]],
                optional: ["detail": text, "refused": refused]
            ),
            "Segment": .schema(ofObject: ["success": ["type": "boolean"]]),
            "SegmentError": .schema(ofObject: ["code": text, "message": text]),
            "AtlasError": .schema(ofObject: ["error": text, "error_code": text]),
            "Inserted": .schema(
                ofObject: [:],
                optional: ["insertedId": [:], "insertedIds": .schema(ofArray: [:])]
            ),
        ]
    }()

    func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem? {
        request.method == .post && intake.isUnderPressure ? HTTPProblem.underPressure : nil
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        .problem(refusal == .wrongMethod ? .oneWay : HTTPProblem(refusal))
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        HTTPProblem(ofIntake: error).map(HTTPServerResponse.problem)
    }

    private func take(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let caller = try await context.admit(key: request)
        let type = try await intake.type(request.pathParameters["type"] ?? "", of: caller)
        let admitted = try AdmittedRequest(request, intake, of: caller)
        var request = request
        let mediaType = request.mediaType
        let batch = try await intake.read(&request, admitted) { body in
            try NativeBatch(body, mediaType: mediaType)
        }
        try admitted.begin(objects: batch.count, textBytes: request.body.count)
        var answer = NativeAnswer()
        let block = try await check(batch, of: type, admitted, &answer)
        let count = block.count
        try await intake.write(
            IntakeWrite(block: consume block),
            objects: count,
            for: &request,
            admitted,
            answerBytes: answer.byteCount
        )
        return answer.response
    }

    /// Separates the objects that can be stored from those that cannot.
    private func check(
        _ batch: consuming NativeBatch,
        of type: KnownType,
        _ admitted: AdmittedRequest,
        _ answer: inout NativeAnswer
    ) async throws -> KafkaRecordBlock {
        let caller = admitted.caller
        var work = try await admitted.beginWork()
        var block = KafkaRecordBlock(
            topic: intake.topics.ingest(type.name),
            headers: Intake.headers(
                app: caller.appID,
                version: type.version,
                receivedAt: .now()
            ),
            count: batch.count,
            sizeBytes: batch.sizeBytes
        )
        let reader = ObjectReader(
            type: type,
            checker: SchemaChecker(),
            isExtended: batch.isExtended
        )
        for index in 0..<batch.count {
            try await work.yieldIfDue()
            let object = try batch.object(index)
            do throws(RefusedObject) {
                let (id, kept) = try reader.read(try object.get())
                guard answer.accept(id) else { continue }
                block.append(key: id) { bytes in JSONValue.object(kept).write(into: &bytes) }
            } catch {
                intake.metrics.refused(error)
                answer.refuse(error, at: index)
            }
        }
        return block
    }
}

extension RequestContext {
    /// Authenticates by an app key alone, or by the credentials of Carillon's own routes.
    func admit(key request: HTTPServerRequest) async throws -> Caller {
        let proof: Proof
        do throws(Refusal) {
            proof = try Proof(keyOrHeaders: request.headers)
        } catch {
            throw error == .unauthorized ? refusal() : error
        }
        return try await admit(proof)
    }
}

extension HTTPProblem {
    static let underPressure = HTTPProblem(
        status: 503,
        detail: "Kafka is unavailable; retry later",
        headers: ["Retry-After": String(Intake.retryAfterSeconds)]
    )

    static let oneWay = HTTPProblem(
        status: 405,
        detail: IngestPath.oneWay,
        headers: ["Allow": IngestPath.allowed]
    )

    /// Maps the errors of any surface of intake; `nil` if the error is not intake's.
    init?(ofIntake error: any Error) {
        switch error {
        case IntakeRefusal.unavailable: self = .underPressure
        case IntakeRefusal.overQuota(let seconds):
            self.init(
                status: 429,
                detail:
                    "the app has sent as many objects as it may a minute; try again in \(seconds) s",
                headers: ["Retry-After": String(seconds)]
            )
        case is FairTurnsFull:
            let seconds = FairTurnsFull.retryAfterSeconds
            self.init(
                status: 429,
                detail: "too much of the app waits to be checked; try again in \(seconds) s",
                headers: ["Retry-After": String(seconds)]
            )
        case IntakeRefusal.unknownType(let name):
            self.init(
                status: 404,
                detail: IngestTypeName.isWellFormed(name)
                    ? "the app has no type \(name): carillon ingest type put"
                    : "the name of a type is invalid"
            )
        case let error as JSONError where error.expected == .fewerValues:
            self.init(status: 413, detail: "the body: \(error.description)")
        case let error as JSONError:
            self.init(status: 400, detail: "the body is not JSON: \(error.description)")
        default: return nil
        }
    }
}
