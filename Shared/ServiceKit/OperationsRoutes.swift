package import HTTPServer
internal import JSON
internal import Observability

extension Router {
    /// What a service answers its operators beside its own routes; nothing where they have a port of
    /// their own (`OPERATIONS_PORT`).
    package mutating func addOperationsRoutes(_ runtime: ServiceRuntime) {
        if !runtime.operations.isApart { addOperations(runtime) }
    }

    /// `GET /livez`: the process turns. `GET /readyz`: 200, or 503 with the name of each part that
    /// is not ready; why it is not is told on a port of the operators' own only. `GET /metrics`:
    /// Prometheus' text. Their access log is at debug.
    mutating func addOperations(_ runtime: ServiceRuntime) {
        let tellsReasons = runtime.operations.isApart
        on(.get, "/livez", logLevel: .debug) { _ in .text("ok\n") }
        on(.get, "/readyz", logLevel: .debug) { _ in
            let problems = runtime.readiness.problems()
            guard !problems.isEmpty else { return .json(["status": "ready"]) }
            let list = problems.map { problem -> JSONValue in
                guard tellsReasons else { return ["part": .string(problem.part)] }
                return ["part": .string(problem.part), "reason": .string(problem.reason)]
            }
            return .json(["status": "not ready", "notReady": .array(list)], status: 503)
        }
        on(.get, "/metrics", logLevel: .debug) { _ in
            var response = HTTPServerResponse.text(runtime.metrics.exposition())
            response.headers["content-type"] = "text/plain; version=0.0.4; charset=utf-8"
            return response
        }
    }
}
