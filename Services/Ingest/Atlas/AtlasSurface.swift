import Cryptography
import EventLoop
import Gateway
import HTTPServer
import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents

/// The insert operations of Atlas' Data API: `insertOne` and `insertMany`. A collection is a type. An insert
/// is stored whole or not at all, as its response cannot name the refused documents.
///
/// Each loop has one instance.
struct AtlasSurface: Surface {
    let intake: Intake

    /// Version 1, and its earlier name.
    private static let bases = ["v1", "beta"].map { "/app/:appId/endpoint/data/\($0)/action/" }

    private enum Action: String, CaseIterable {
        case insertOne, insertMany
    }

    /// The other operations of Atlas, which are refused here.
    private static let others = [
        "find", "findOne", "aggregate", "updateOne", "updateMany", "replaceOne", "deleteOne",
        "deleteMany",
    ]

    func owns(_ request: HTTPServerRequest) -> Bool {
        let path = IngestPath.plain(request.path)
        return path == "/app" || path.hasPrefix("/app/")
    }

    private static let patterns = bases.flatMap { base in
        (Action.allCases.map(\.rawValue) + others).map { base + $0 }
    }

    var cors: CORS? {
        CORS(
            Self.patterns.flatMap(IngestPath.variants),
            methods: "POST",
            headers: IngestPath.allowedHeaders,
            exposed: "Retry-After"
        )
    }

    var routes: [SurfaceRoute] {
        let documents = ["application/json", "application/ejson"]
        let insert = RouteDescription(
            "Take in documents as Atlas' Data API does",
            for: IngestPath.senders,
            body: .init(types: documents, schema: ["type": "object"]),
            answers: [
                .init(
                    201,
                    "Kafka has it",
                    .init(types: documents, schema: .schema(named: "Inserted"))
                )
            ],
            refusal: .json(named: "AtlasError")
        )
        return Action.allCases.flatMap { action in
            route(action.rawValue, insert) { request, context in
                try await take(request, context, action)
            }
        }
            + Self.others.flatMap { name in
                route(name) { _, _ in error(.oneWay, code: "MethodNotAllowed") }
            }
    }

    private func route(
        _ name: String,
        _ description: RouteDescription? = nil,
        _ handler:
            @escaping @Sendable (HTTPServerRequest, RequestContext) async throws ->
            HTTPServerResponse
    ) -> [SurfaceRoute] {
        let action = Self.bases[0] + name
        let described = Self.bases.map { $0 + name }
        return described.flatMap(IngestPath.variants).map { pattern in
            let route = SurfaceRoute(
                .post,
                pattern,
                action: pattern == action ? nil : "POST \(action)",
                appName: "appId",
                maximumBodyBytes: ObjectLimits.bodyBytes,
                handler: .unauthenticated(handler)
            )
            guard let description, described.contains(pattern) else { return route }
            return route.described(description)
        }
    }

    func refusal(beforeBodyOf request: HTTPServerRequest) -> HTTPProblem? {
        request.method == .post && intake.isUnderPressure ? HTTPProblem.underPressure : nil
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        switch refusal {
        case .unauthorized, .signatureTooOld:
            error(HTTPProblem(refusal), code: "InvalidSession")
        case .wrongMethod: error(.oneWay, code: "MethodNotAllowed")
        case .problem(let problem): error(problem, code: Self.code(problem.status))
        default:
            error(HTTPProblem(refusal), code: Self.code(HTTPProblem(refusal).status))
        }
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        switch error {
        case let refused as RefusedDocument: refused.response
        case IntakeRefusal.unknownType(let name):
            self.error(
                HTTPProblem(
                    status: 404,
                    detail: IngestTypeName.isWellFormed(name)
                        ? "collection: the app has no type \(name)" : "collection: no type's name"
                ),
                code: "NoSuchType"
            )
        default:
            HTTPProblem(ofIntake: error).map { self.error($0, code: Self.code($0.status)) }
        }
    }

    private static func code(_ status: Int) -> String {
        switch status {
        case 400: "InvalidParameter"
        case 401: "InvalidSession"
        case 404: "NotFound"
        case 405: "MethodNotAllowed"
        case 413: "PayloadTooLarge"
        case 415: "UnsupportedEncoding"
        case 429: "TooManyRequests"
        case 503: "ServiceUnavailable"
        default: "InternalServerError"
        }
    }

    private func error(_ problem: HTTPProblem, code: String) -> HTTPServerResponse {
        var response = HTTPServerResponse.json(
            [
                "error": .string(
                    problem.detail.isEmpty ? statusText(problem.status) : problem.detail
                ),
                "error_code": .string(code),
            ],
            status: problem.status
        )
        for field in problem.headers { response.headers[field.name] = field.value }
        return response
    }

    // MARK: Inserting

    private func take(
        _ request: HTTPServerRequest,
        _ context: RequestContext,
        _ action: Action
    ) async throws -> HTTPServerResponse {
        let caller = try await admit(request, context)
        let admitted = try AdmittedRequest(request, intake, of: caller)
        var request = request
        let isExtended = request.mediaType == "application/ejson"
        let insert = try await intake.read(&request, admitted) { body in
            try AtlasInsert(body, isMany: action == .insertMany)
        }
        try admitted.begin(objects: insert.count, textBytes: request.body.count)
        let type = try await intake.type(insert.collection, of: caller)
        let (block, ids) = try await check(insert, type, isExtended, admitted)
        try await intake.write(
            IntakeWrite(block: block),
            objects: ids.count,
            for: &request,
            admitted
        )
        let accepted = request.header("accept")?.lowercased() ?? ""
        let isAnswerExtended =
            accepted.contains("application/ejson")
            || isExtended && !accepted.contains("application/json")
        let told = ids.map { Self.told($0, isExtended: isAnswerExtended) }
        return .json(
            action == .insertOne
                ? ["insertedId": told.first ?? .null] : ["insertedIds": .array(told)],
            status: 201,
            contentType: isAnswerExtended ? "application/ejson" : "application/json"
        )
    }

    private static func told(_ id: String, isExtended: Bool) -> JSONValue {
        isExtended && id.utf8.count == 24 ? ["$oid": .string(id)] : .string(id)
    }

    /// Authenticates by `apiKey`, which is the app key, or by the credentials of the other
    /// surfaces. The path names the app. The header is also accepted as `api-key`, the name in the
    /// snippets that Atlas' pages generated.
    private func admit(_ request: HTTPServerRequest, _ context: RequestContext) async throws
        -> Caller
    {
        let caller: Caller
        let keys = ["apikey", "api-key"].lazy.compactMap { request.header($0) }
        if let key = keys.first(where: { !$0.isEmpty }) {
            caller = try await context.admit(Proof(appKey: key))
        } else {
            caller = try await context.admit(key: request)
        }
        guard caller.appID == request.pathParameters["appId"] else { throw context.refusal() }
        return caller
    }

    /// - Throws: `RefusedDocument` for the first document that cannot be stored.
    private func check(
        _ insert: AtlasInsert,
        _ type: KnownType,
        _ isExtended: Bool,
        _ admitted: AdmittedRequest
    ) async throws -> (KafkaRecordBlock, ids: [String]) {
        let caller = admitted.caller
        var work = try await admitted.beginWork()
        var block = KafkaRecordBlock(
            topic: intake.topics.ingest(type.name),
            headers: Intake.headers(
                app: caller.appID,
                version: type.version,
                receivedAt: .now()
            ),
            count: insert.count
        )
        var ids: [String] = []
        let reader = ObjectReader(type: type, checker: SchemaChecker(), isExtended: isExtended)
        for index in 0..<insert.count {
            try await work.yieldIfDue()
            do {
                let (id, kept) = try reader.read(try insert.document(index)) {
                    ObjectID.make(at: .now(), random: .random(in: 0...UInt64.max))
                }
                let value = JSONValue.object(kept).bytes
                guard value.count <= ObjectLimits.bytes else { throw ObjectText.tooLarge(id) }
                block.append(key: id) { $0.append(contentsOf: value) }
                ids.append(id)
            } catch let error as RefusedObject {
                intake.metrics.refused(error)
                throw RefusedDocument(
                    place: insert.isMany ? "documents[\(index)]" : "document",
                    object: error
                )
            }
        }
        return (block, ids)
    }
}

/// The document for which an insert is refused.
struct RefusedDocument: Error, Sendable {
    let place: String
    let object: RefusedObject

    var response: HTTPServerResponse {
        .json(
            [
                "error": .string("\(place)\(object.pointer): \(object.reason)"),
                "error_code": "SchemaValidationFailedWrite",
            ],
            status: 400
        )
    }
}
