import Apps
import Door
import HTTPServer
import JSON
import Observability
import PushCore
import PushStorage

/// What each route does.
extension ParseSurface {
    private typealias ObjectClass = ObjectOperations.ObjectClass

    func answer(
        _ route: ParseRoute,
        _ call: ParseCall,
        _ caller: Caller,
        _ request: HTTPServerRequest
    ) async throws -> Answer {
        do {
            switch route {
            case .create(let objectClass):
                return try await create(objectClass, call, caller, request)
            case .find(let objectClass): return try await find(objectClass, call, caller)
            case .read(let objectClass, let id):
                return try await read(objectClass, id, call, caller)
            case .update(let objectClass, let id):
                let saved = try await objects.update(
                    objectClass,
                    id: id,
                    body: fields(of: call, objectClass),
                    rule: rule(call, caller),
                    caller: caller
                )
                var body = saved.results
                body["updatedAt"] = .string(saved.updatedAt.iso8601)
                return Answer(body: body)
            case .delete(let objectClass, let id):
                try await objects.delete(objectClass, ids: [id], caller: caller)
                return Answer(body: [:])
            case .push: return try await push(call, caller)
            case .health: return Answer(body: ["status": "ok"])
            case .batch: throw ObjectError(code: 107, "A batch cannot be in a batch.")
            }
        } catch let error as ObjectError where error.code == 119 && route != .push {
            // Parse's status for what the key may not do; a push alone is 403.
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

    private func create(
        _ objectClass: ObjectClass,
        _ call: ParseCall,
        _ caller: Caller,
        _ request: HTTPServerRequest
    ) async throws -> Answer {
        let saved = try await objects.create(
            objectClass,
            body: fields(of: call, objectClass),
            rule: rule(call, caller),
            caller: caller
        )
        guard saved.isNew else { return Answer(body: Self.updated(saved)) }
        var body = saved.results
        body["objectId"] = .string(saved.objectID)
        body["createdAt"] = .string(saved.createdAt.iso8601)
        let place = objectClass == .identity ? "users" : "classes/\(objectClass.className)"
        return Answer(
            status: 201,
            body: body,
            location: "\(request.outsideBase)/parse/\(place)/\(saved.objectID)"
        )
    }

    /// A create that met an object: Parse's package shows wrong values where it is not told what its
    /// operations came to.
    private static func updated(_ saved: ObjectOperations.Saved) -> JSONObject {
        var body = saved.results
        body["objectId"] = .string(saved.objectID)
        body["updatedAt"] = .string(saved.updatedAt.iso8601)
        return body
    }

    private func read(
        _ objectClass: ObjectClass,
        _ id: String,
        _ call: ParseCall,
        _ caller: Caller
    ) async throws -> Answer {
        var query = try ParseQuery.read(call.parameters)
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
        return Answer(body: found)
    }

    private func find(
        _ objectClass: ObjectClass,
        _ call: ParseCall,
        _ caller: Caller
    ) async throws -> Answer {
        let query = try ParseQuery.find(call.parameters)
        let found =
            objectClass == .pushRecord
            ? try await pushStatuses(query, caller)
            : try await objects.find(objectClass, query, caller: caller)
        var body: JSONObject = ["results": .array(found.results.map { .object($0) })]
        if let count = found.count { body["count"] = JSONValue(count) }
        return Answer(body: body)
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

    private func push(_ call: ParseCall, _ caller: Caller) async throws -> Answer {
        let push = try await pushes.accept(
            try ParsePush.request(call.parameters),
            requestKey: call.requestID,
            caller: caller
        )
        return Answer(body: ["result": true], pushStatusID: push.id)
    }

    // MARK: Batches

    private static let maximumBatch = 1000
    /// What the answers of a batch may come to, as text.
    private static let maximumAnswerBytes = 16 << 20

    /// Each item by itself, in order; what fails does so in its own place, as those before it are
    /// kept already.
    func batch(
        _ call: ParseCall,
        _ caller: Caller,
        _ request: HTTPServerRequest,
        _ log: Log
    ) async throws -> [JSONValue] {
        let items = try batchItems(call)
        var answers: [JSONValue] = []
        var left = Self.maximumAnswerBytes
        for item in items {
            try caller.checkPresence()
            do {
                guard left > 0 else {
                    throw ObjectError(code: 116, "The answers before are too large in all.")
                }
                try caller.visit?.countItem(of: caller.app, caller.rights)
                let route = try ParseRoute(item.method, item.path)
                caller.visit?.noteItem(route.action)
                if let id = route.id { caller.visit?.note(id) }
                let answer = JSONValue.object(
                    try await answer(route, item, caller, request).body
                )
                let size = answer.bytes.count
                left = caller.holdAnswer(bytes: size) ? left - size : 0
                answers.append(["success": answer])
            } catch {
                var told = Self.told(error)
                if told == nil, !(error is CancellationError) {
                    log.error(
                        "request handler failed",
                        [.httpRoute: "/parse/batch", .error: .string("\(error)")]
                    )
                    told = .internal
                }
                answers.append(["error": Self.body(of: told ?? .unavailable)])
            }
        }
        return answers
    }

    /// - Throws: `ObjectError` for what makes the whole batch one that cannot be done.
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
