package import HTTPServer
internal import JSON
internal import Observability

extension Router {
    /// `GET /livez`: the process turns. `GET /readyz`: 200, or 503 with the name of each part that
    /// is not ready and why. `GET /metrics`: Prometheus' text. Their access log is at debug.
    package mutating func addOperationsRoutes(_ runtime: ServiceRuntime) {
        on(.get, "/livez", logLevel: .debug) { _ in .text("ok\n") }
        on(.get, "/readyz", logLevel: .debug) { _ in
            let problems = runtime.readiness.problems()
            guard !problems.isEmpty else { return .json(["status": "ready"]) }
            let list = problems.map { problem -> JSONValue in
                ["part": .string(problem.part), "reason": .string(problem.reason)]
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
