package import Gateway
import HTTPServer
package import JSON
import ServiceKit

/// Describes a service in OpenAPI 3.0.3: the descriptions of its routes, and their common parts.
package struct OpenAPI: Sendable {
    package static let path = "/openapi.json"

    private let title: String
    private let about: String
    private let securitySchemes: JSONObject
    private let schemas: JSONObject
    private let pathSchema: @Sendable (String) -> JSONValue

    /// - Parameters:
    ///   - title: The service's title.
    ///   - about: A sentence or two for its callers.
    ///   - securitySchemes: By the names that routes use.
    ///   - schemas: By the names that routes refer to; `Problem` is always present.
    ///   - pathSchema: The schema of a path's parameter, by its name.
    package init(
        _ title: String,
        _ about: String,
        securitySchemes: JSONObject,
        schemas: JSONObject = [:],
        pathSchema: @escaping @Sendable (String) -> JSONValue = { _ in ["type": "string"] }
    ) {
        self.title = title
        self.about = about
        self.securitySchemes = securitySchemes
        self.schemas = schemas
        self.pathSchema = pathSchema
    }

    private static let problem: JSONValue = .schema(
        ofObject: ["title": ["type": "string"], "status": ["type": "integer"]],
        optional: ["detail": ["type": "string"]]
    )

    /// Renders the document.
    ///
    /// - Parameters:
    ///   - routes: Routes without a description are left out.
    ///   - withOperations: Whether to include the operations routes.
    /// - Returns: JSON.
    package func document(of routes: [SurfaceRoute], withOperations: Bool) -> [UInt8] {
        var described = routes.compactMap { route in
            route.description.map { (route.method.rawValue, route.pattern, $0) }
        }
        described.append(
            ("GET", Self.path, Self.openRoute("This document", .json(["type": "object"])))
        )
        if withOperations {
            described += Self.operations.map { ("GET", $0.path, $0.description) }
        }
        var paths: JSONObject = [:]
        for (method, pattern, description) in described {
            let path = Self.template(pattern)
            var methods = paths[path]?.object ?? [:]
            methods[method.lowercased()] = operation(description, at: path)
            paths[path] = .object(methods)
        }
        var all = schemas
        if all["Problem"] == nil { all["Problem"] = Self.problem }
        let document: JSONObject = [
            "openapi": "3.0.3",
            "info": [
                "title": .string(title), "version": .string(carillonVersion),
                "description": .string(about),
            ],
            "paths": .object(paths),
            "components": [
                "securitySchemes": .object(securitySchemes), "schemas": .object(all),
            ],
        ]
        return document.bytes
    }

    private static func openRoute(
        _ summary: String,
        _ content: RouteDescription.Content
    ) -> RouteDescription {
        RouteDescription(summary, for: [], answers: [.init(200, summary, content)], refusal: nil)
    }

    private static let operations: [(path: String, description: RouteDescription)] = [
        ("/livez", openRoute("Whether the process turns", .init("text/plain"))),
        (
            "/readyz",
            RouteDescription(
                "Whether the service should get work",
                for: [],
                answers: [
                    .init(200, "It should", .json(readiness)),
                    .init(503, "It should not; names what is not ready", .json(readiness)),
                ],
                refusal: nil
            )
        ),
        ("/metrics", openRoute("Prometheus' text", .init("text/plain"))),
    ]

    private static let readiness: JSONValue = .schema(
        ofObject: ["status": ["type": "string", "enum": ["ready", "not ready"]]],
        optional: [
            "notReady": .schema(
                ofArray: .schema(
                    ofObject: ["part": ["type": "string"]],
                    optional: [
                        "reason": ["type": "string", "description": "On OPERATIONS_PORT only"]
                    ]
                )
            )
        ]
    )

    /// Returns a pattern in OpenAPI's form: `/v1/things/:id` is `/v1/things/{id}`.
    private static func template(_ pattern: String) -> String {
        pattern.split(separator: "/", omittingEmptySubsequences: false).map { segment in
            guard segment.first == ":" else { return String(segment) }
            let name = segment.dropFirst().prefix { $0 != ":" }
            return "{\(name)}" + segment.dropFirst(1 + name.count)
        }.joined(separator: "/")
    }

    private func operation(_ description: RouteDescription, at path: String) -> JSONValue {
        let inPath = path.split(separator: "/").filter { $0.first == "{" }.map { segment in
            let name = String(segment.dropFirst().prefix { $0 != "}" })
            let own = description.parameters.first { $0.place == "path" && $0.name == name }
            return Self.parameter(
                name,
                in: "path",
                own?.schema ?? pathSchema(name),
                nil,
                isRequired: true
            )
        }
        let others = description.parameters.filter { $0.place != "path" }.map {
            Self.parameter($0.name, in: $0.place, $0.schema, $0.note, isRequired: $0.isRequired)
        }
        var responses: JSONObject = [:]
        for answer in description.answers {
            responses[String(answer.status)] = Self.response(answer.note, answer.content)
        }
        if let refusal = description.refusal {
            responses["default"] = Self.response("Refused", refusal)
        }
        let security = description.schemes.map { names -> JSONValue in
            .object(names.reduce(into: JSONObject()) { $0[$1] = [] })
        }
        var operation: JSONObject = [
            "summary": .string(description.summary), "security": .array(security),
            "parameters": .array(inPath + others), "responses": .object(responses),
        ]
        if let body = description.body {
            operation["requestBody"] = [
                "required": .bool(description.needsBody), "content": Self.content(body),
            ]
        }
        return .object(operation)
    }

    private static func parameter(
        _ name: String,
        in place: String,
        _ schema: JSONValue,
        _ note: String?,
        isRequired: Bool
    ) -> JSONValue {
        var parameter: JSONObject = ["name": .string(name), "in": .string(place)]
        if isRequired { parameter["required"] = true }
        if let note { parameter["description"] = .string(note) }
        parameter["schema"] = schema
        return .object(parameter)
    }

    private static func response(
        _ note: String,
        _ content: RouteDescription.Content?
    ) -> JSONValue {
        var response: JSONObject = ["description": .string(note)]
        if let content { response["content"] = Self.content(content) }
        return .object(response)
    }

    private static func content(_ content: RouteDescription.Content) -> JSONValue {
        .object(content.types.reduce(into: JSONObject()) { $0[$1] = ["schema": content.schema] })
    }
}
