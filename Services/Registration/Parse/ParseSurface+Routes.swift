import Gateway
import HTTPServer
import JSON
import Observability
import PushCore
import PushStorage

/// A call with an authenticated sender, as a route gets it.
struct ParseQuestion: Sendable {
    let call: ParseCall
    let caller: Caller
    /// The id in the path.
    let id: String
    /// The base URL of the service, as seen from outside.
    let base: String
}

/// The handlers of the routes.
extension ParseSurface {
    typealias ObjectClass = ObjectOperations.ObjectClass

    /// A route's response, before it becomes HTTP or an item of a batch.
    struct Answer: Sendable {
        var status = 200
        var body: JSONValue
        var location: String?
        var pushStatusID: String?
        /// The body's `results`, if they are too many to be made at once.
        var later: StreamedObjects?

        var response: HTTPServerResponse {
            if let later { return later.response(beside: body.object ?? [:]) }
            var response = HTTPServerResponse.json(body, status: status)
            if let location { response.headers["Location"] = location }
            if let pushStatusID { response.headers["X-Parse-Push-Status-Id"] = pushStatusID }
            return response
        }
    }

    func answer(_ route: ParseRoute, _ question: ParseQuestion) async throws -> Answer {
        if !question.id.isEmpty { question.caller.context?.note(question.id) }
        do {
            switch route.work {
            case .create(let objectClass): return try await create(objectClass, question)
            case .find(let objectClass): return try await find(objectClass, question)
            case .read(let objectClass): return try await read(objectClass, question)
            case .update(let objectClass): return try await update(objectClass, question)
            case .delete(let objectClass): return try await delete(objectClass, question)
            case .push: return try await push(question)
            case .batch: return try await batch(question)
            case .health: return Answer(body: ["status": "ok"])
            }
        } catch let error as ObjectError where error.code == 119 && route.work != .push {
            // Parse answers with 400 if the key does not allow a call; only a push gets 403.
            throw ObjectError(code: error.code, error.description)
        }
    }

    private func rule(_ call: ParseCall, _ caller: Caller) -> SaveRule {
        .parse(callerInstallationID: call.installationID, isMaster: caller.isMaster)
    }

    private func fields(of call: ParseCall, _ objectClass: ObjectClass) -> JSONObject {
        objectClass == .installation
            ? SaveRule.parseNormalized(call.parameters) : call.parameters
    }

    // MARK: Objects

    private func create(_ objectClass: ObjectClass, _ question: ParseQuestion) async throws
        -> Answer
    {
        let (call, caller) = (question.call, question.caller)
        let saved = try await objects.create(
            objectClass,
            body: fields(of: call, objectClass),
            rule: rule(call, caller),
            caller: caller
        )
        guard saved.isNew else { return Answer(body: .object(Self.updated(saved))) }
        var body = saved.results
        body["objectId"] = .string(saved.objectID)
        body["createdAt"] = .string(saved.createdAt.iso8601)
        let place = objectClass == .identity ? "users" : "classes/\(objectClass.className)"
        return Answer(
            status: 201,
            body: .object(body),
            location: "\(question.base)/parse/\(place)/\(saved.objectID)"
        )
    }

    /// Returns the response of a create that changed an existing object: Parse's package shows wrong values
    /// unless it gets the results of its operations.
    private static func updated(_ saved: ObjectOperations.Saved) -> JSONObject {
        var body = saved.results
        body["objectId"] = .string(saved.objectID)
        body["updatedAt"] = .string(saved.updatedAt.iso8601)
        return body
    }

    private func read(_ objectClass: ObjectClass, _ question: ParseQuestion) async throws -> Answer
    {
        let (id, caller) = (question.id, question.caller)
        var query = try ParseQuery.read(question.call.parameters)
        let found: JSONObject?
        if objectClass == .pushRecord {
            query.condition = try .objectID(id)
            query.limit = 1
            found = try await pushStatuses(query, caller).results.first
        } else {
            found = try await objects.read(
                objectClass,
                id: id,
                include: query.include,
                caller: caller
            )
            .map(query.selection.apply(to:))
        }
        guard let found else { throw ObjectError.objectNotFound(objectClass.parseName) }
        return Answer(body: .object(found))
    }

    private func find(_ objectClass: ObjectClass, _ question: ParseQuestion) async throws -> Answer
    {
        let caller = question.caller
        let query = try ParseQuery.find(question.call.parameters)
        let found =
            objectClass == .pushRecord
            ? try await pushStatuses(query, caller)
            : try await objects.find(
                objectClass,
                query,
                caller: caller,
                mayBeLater: !question.call.isInBatch
            )
        var body: JSONObject = [:]
        if found.later == nil { body["results"] = .array(found.results.map { .object($0) }) }
        if let count = found.count { body["count"] = JSONValue(count) }
        return Answer(body: .object(body), later: found.later)
    }

    private func update(_ objectClass: ObjectClass, _ question: ParseQuestion) async throws
        -> Answer
    {
        let saved = try await objects.update(
            objectClass,
            id: question.id,
            body: fields(of: question.call, objectClass),
            rule: rule(question.call, question.caller),
            caller: question.caller
        )
        var body = saved.results
        body["updatedAt"] = .string(saved.updatedAt.iso8601)
        return Answer(body: .object(body))
    }

    private func delete(_ objectClass: ObjectClass, _ question: ParseQuestion) async throws
        -> Answer
    {
        try await objects.delete(objectClass, ids: [question.id], caller: question.caller)
        return Answer(body: [:])
    }

    // MARK: Pushes

    private func pushStatuses(
        _ query: ObjectQuery,
        _ caller: Caller
    ) async throws -> ObjectOperations.Found {
        var query = query
        query.condition = try ParsePushStatus.translated(query.condition)
        query.order = try ParsePushStatus.translated(query.order)
        let found = try await objects.pushes(query, caller: caller)
        let sent = try await objects.platforms(of: found.pushes)
        let results = found.pushes.map { push in
            query.selection.apply(
                to: ParsePushStatus.object(of: push, sent: sent[push.id] ?? [])
            )
        }
        return ObjectOperations.Found(results: results, count: found.count)
    }

    private func push(_ question: ParseQuestion) async throws -> Answer {
        let push = try await pushes.accept(
            try ParsePush.request(question.call.parameters),
            requestKey: question.call.requestID,
            caller: question.caller
        )
        return Answer(body: ["result": true], pushStatusID: push.id)
    }

    // MARK: Batches

    private static let maximumBatch = 1000
    /// The limit of all responses of a batch, in bytes of JSON.
    private static let maximumAnswerBytes = 16 << 20

    /// Executes each item by itself, in order; a failure is that item's result, as the items before it are
    /// already stored.
    private func batch(_ question: ParseQuestion) async throws -> Answer {
        let caller = question.caller
        var answers: [JSONValue] = []
        var left = Self.maximumAnswerBytes
        for item in try batchItems(question.call) {
            try caller.checkPresence()
            do {
                guard left > 0 else {
                    throw ObjectError(code: 116, "The answers before are too large in all.")
                }
                try caller.countItem()
                let (route, id) = try ParseRoute.find(item.method, item.path)
                caller.context?.noteItem(route.action)
                let inner = ParseQuestion(
                    call: item,
                    caller: caller,
                    id: id ?? "",
                    base: question.base
                )
                let answer = try await answer(route, inner).body
                let size = answer.bytes.count
                left = caller.holdAnswer(bytes: size) ? left - size : 0
                answers.append(["success": answer])
            } catch {
                var told = ObjectError(ofParse: error)
                if told == nil, !(error is CancellationError) {
                    log.error(
                        "request handler failed",
                        [.httpRoute: "/parse/batch", .error: .string("\(error)")]
                    )
                    told = .internal
                }
                answers.append(["error": (told ?? .unavailable).parseBody])
            }
        }
        return Answer(body: .array(answers))
    }

    /// - Throws: `ObjectError` if the whole batch is invalid.
    private func batchItems(_ call: ParseCall) throws -> [ParseCall] {
        guard let requests = call.parameters["requests"]?.array else {
            throw ObjectError(code: 107, "requests must be an array.")
        }
        guard requests.count <= Self.maximumBatch else {
            throw ObjectError(code: 107, "A batch holds at most \(Self.maximumBatch) requests.")
        }
        switch call.parameters["transaction"] {
        case nil, .null?, .bool(false)?: break
        default: throw ObjectError(code: 108, "transaction is not supported.")
        }
        var items: [ParseCall] = []
        for item in requests {
            guard let name = item["method"]?.string,
                let method = HTTPMethod(rawValue: name.uppercased()),
                let path = item["path"]?.string
            else { throw ObjectError(code: 107, "Each request needs a method and a path.") }
            guard path.hasPrefix("/\(ParseCall.prefix)/") else {
                throw ObjectError(code: 107, "A request's path must begin with /parse/.")
            }
            guard let body = (item["body"] ?? .null).isNull ? [:] : item["body"]?.object else {
                throw ObjectError(code: 107, "A request's body must be an object.")
            }
            let call = try ParseCall(method: method, target: path, body: body, of: call)
            guard call.path.first != "batch" else {
                throw ObjectError(code: 107, "A batch cannot be in a batch.")
            }
            items.append(call)
        }
        return items
    }
}

extension ObjectOperations.ObjectClass {
    var parseName: String { self == .pushRecord ? "_PushStatus" : className }
}
