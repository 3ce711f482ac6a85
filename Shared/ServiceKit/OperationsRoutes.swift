package import HTTPServer
internal import JSON
internal import Observability

extension Router {
    /// Adds the operations routes beside the service's own; does nothing if they have a port of
    /// their own (`OPERATIONS_PORT`).
    package mutating func addOperationsRoutes(_ runtime: ServiceRuntime) {
        if !runtime.operations.isApart { addOperations(runtime) }
    }

    /// Adds `GET /livez`: the loop turns. `GET /readyz`: 200, or 503 with the name of each part
    /// that is not ready. Reasons and warnings are only shown on a port for operators. `GET
    /// /metrics`: Prometheus' text. Their access log is at debug.
    mutating func addOperations(_ runtime: ServiceRuntime) {
        let tellsReasons = runtime.operations.isApart
        on(.get, "/livez", logLevel: .debug) { _ in .text("ok\n") }
        on(.get, "/readyz", logLevel: .debug) { _ in
            func list(_ found: [(part: String, reason: String)]) -> JSONValue {
                .array(
                    found.map { item -> JSONValue in
                        guard tellsReasons else { return ["part": .string(item.part)] }
                        return ["part": .string(item.part), "reason": .string(item.reason)]
                    }
                )
            }
            let problems = runtime.readiness.problems()
            var answer: JSONObject = ["status": problems.isEmpty ? "ready" : "not ready"]
            if !problems.isEmpty { answer["notReady"] = list(problems) }
            let warnings = tellsReasons ? runtime.readiness.warnings() : []
            if !warnings.isEmpty { answer["warnings"] = list(warnings) }
            return .json(.object(answer), status: problems.isEmpty ? 200 : 503)
        }
        on(.get, "/metrics", logLevel: .debug) { _ in
            var response = HTTPServerResponse.text(runtime.metrics.exposition())
            response.headers["content-type"] = "text/plain; version=0.0.4; charset=utf-8"
            return response
        }
    }
}
