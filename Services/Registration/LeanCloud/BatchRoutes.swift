import Gateway
import HTTPServer
import JSON
import PushCore

/// `/batch`: several calls in one. Each call is routed by itself, with the rights of the batch.
/// They run one after the other, as a later one may need the result of an earlier one. One that
/// fails does not end the batch.
extension LeanCloudSurface {
    var batchRoutes: [LeanCloudRoute] {
        [
            LeanCloudRoute(.post, "batch") { try await batch($0) },
            LeanCloudRoute(.post, "batch/save") { try await batchSave($0) },
        ]
    }

    static let maximumBatch = 1000
    /// LeanCloud accepts 20 MB; HTTP/2 buffers this much of one connection.
    static let maximumBatchBytes = 16 << 20
    /// The limit of all responses of a batch, in bytes of JSON.
    private static let maximumAnswerBytes = 16 << 20

    private func batch(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        let requests = try Self.requests(of: call)
        let routes = calls
        var results: [JSONValue] = []
        results.reserveCapacity(requests.count)
        var left = Self.maximumAnswerBytes
        for request in requests {
            try call.caller.checkPresence()
            do {
                guard left > 0 else {
                    throw LeanCloudError(code: 116, "The answers before are too large in all.")
                }
                let item = try BatchItem(request)
                let answer = try await run(item, routes, for: call).body
                let size = answer.bytes.count
                left = call.caller.holdAnswer(bytes: size) ? left - size : 0
                results.append(["success": answer])
            } catch {
                results.append(["error": try Self.itemError(error).leanCloudBody])
            }
        }
        return LeanCloudAnswer(.array(results))
    }

    /// Saves objects. The response names each result by the `__internalId` of the item's body, or
    /// else by the object id in its path. The first failure ends the batch; earlier saves stay.
    private func batchSave(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        let requests = try Self.requests(of: call)
        let routes = calls
        var results: JSONObject = [:]
        var left = Self.maximumAnswerBytes
        for request in requests {
            try call.caller.checkPresence()
            guard left > 0 else {
                throw LeanCloudError(code: 116, "The answers before are too large in all.")
            }
            var item = try BatchItem(request)
            guard item.method == .post || item.method == .put else {
                throw LeanCloudError(code: 107, "batch/save takes POST and PUT alone.")
            }
            let name = item.body?["__internalId"]?.string ?? item.segments.last ?? ""
            if var body = item.body?.object {
                for key in ["__internalId", "__children"] { body.removeValue(forKey: key) }
                item.body = .object(body)
            }
            let answer = try await run(item, routes, for: call).body
            let size = answer.bytes.count
            left = call.caller.holdAnswer(bytes: size) ? left - size : 0
            results[name] = answer
        }
        return LeanCloudAnswer(.object(results))
    }

    private static func requests(of call: LeanCloudCall) throws(LeanCloudError) -> [JSONValue] {
        guard !call.isInBatch else { throw LeanCloudError(code: 107, "A batch in a batch.") }
        guard let requests = try call.object()["requests"]?.array else {
            throw LeanCloudError(code: 107, "requests must be an array.")
        }
        guard requests.count <= maximumBatch else {
            throw LeanCloudError(code: 107, "A batch has at most \(maximumBatch) requests.")
        }
        return requests
    }

    private func run(
        _ item: BatchItem,
        _ routes: [LeanCloudRoute],
        for call: LeanCloudCall
    ) async throws -> LeanCloudAnswer {
        for route in routes where route.method == item.method {
            guard let parameters = route.match(item.segments) else { continue }
            var inner = LeanCloudCall(method: item.method, caller: call.caller)
            inner.pathParameters = parameters
            inner.parameters = item.parameters
            inner.body = item.body.map { .value($0) } ?? .none
            inner.prodHeader = call.prodHeader
            inner.base = call.base
            inner.isInBatch = true
            try call.caller.countItem()
            call.caller.context?.noteItem("\(item.method.rawValue) /1.1/\(route.pattern)")
            for id in (parameters["id"] ?? "").split(separator: ",") {
                call.caller.context?.note(String(id))
            }
            return try await route.handler(inner)
        }
        throw LeanCloudSurface.nothing(at: "/1.1/" + item.segments.joined(separator: "/"))
    }

    /// Returns the error of one item. Only a cancellation ends the whole batch, as earlier items
    /// are already stored.
    private static func itemError(_ error: any Error) throws -> LeanCloudError {
        if error is CancellationError { throw error }
        return LeanCloudError(error) ?? .internal
    }
}

/// One request of a batch.
struct BatchItem {
    let method: HTTPMethod
    /// The path below `/1.1`.
    let segments: [String]
    /// The parameters in `params` and in the path's query string.
    let parameters: JSONObject
    var body: JSONValue?

    init(_ value: JSONValue) throws(LeanCloudError) {
        guard let name = value["method"]?.string?.uppercased(),
            let method = HTTPMethod(rawValue: name), let path = value["path"]?.string,
            path.utf8.allSatisfy({ $0 >= 0x20 })
        else { throw LeanCloudError(code: 107, "A request needs a method and a path.") }
        let target: HTTPServerRequest
        do {
            target = try HTTPServerRequest(method, path)
        } catch {
            throw LeanCloudError(code: 107, "The path of a request cannot be read.")
        }
        guard target.isBelow("/1.1") else {
            throw LeanCloudError(code: 107, "The path of a request begins with /1.1/.")
        }
        self.method = method == .head ? .get : method
        segments = Array(target.pathSegments.dropFirst())
        var parameters = JSONObject(target.query.map { ($0.name, .string($0.value)) })
        if let given = value["params"], !given.isNull {
            guard let object = given.object else {
                throw LeanCloudError(code: 107, "params must be an object.")
            }
            for (key, value) in object { parameters[key] = value }
        }
        self.parameters = parameters
        body = value["body"]
    }
}
