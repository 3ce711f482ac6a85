import JSON
import ServiceKit

/// `/openapi.json`: what this service answers. Firebase's documentation says what templates are.
enum OpenAPIDocument {
    /// The document; the operators' routes are in it where they stand beside ours.
    static func bytes(withOperations: Bool) -> [UInt8] {
        let document: JSONObject = [
            "openapi": "3.0.3",
            "info": [
                "title": "Carillon config watcher", "version": .string(carillonVersion),
                "description": .string(
                    "Firebase Remote Config's REST API, of version 1. Names are also taken in snake "
                        + "case, and Google's standard query parameters at every route. Another "
                        + "parameter is 400."
                ),
            ],
            "paths": .object(paths(withOperations: withOperations)),
            "components": [
                "securitySchemes": [
                    "configToken": ["type": "http", "scheme": "bearer"],
                    "masterKey": ["type": "http", "scheme": "basic"],
                    "apiKey": ["type": "apiKey", "in": "query", "name": "key"],
                    "apiKeyHeader": ["type": "apiKey", "in": "header", "name": "X-Goog-Api-Key"],
                ],
                "schemas": [
                    "Error": [
                        "type": "object", "required": ["error"],
                        "properties": [
                            "error": [
                                "type": "object", "required": ["code", "message", "status"],
                                "properties": [
                                    "code": ["type": "integer"], "message": ["type": "string"],
                                    "status": ["type": "string"],
                                    "details": ["type": "array", "items": ["type": "object"]],
                                ],
                            ]
                        ],
                    ]
                ],
            ],
        ]
        return document.bytes
    }

    private enum Right {
        case publisher, client, anybody
    }

    private struct Operation {
        let method: String
        let path: String
        let summary: JSONValue
        let right: Right
        var query: [JSONValue] = []
        var hasBody = false
        var contentType = "application/json"

        init(
            _ method: String,
            _ path: String,
            _ summary: JSONValue,
            _ right: Right = .publisher,
            query: [JSONValue] = [],
            hasBody: Bool = false,
            contentType: String = "application/json"
        ) {
            self.method = method
            self.path = path
            self.summary = summary
            self.right = right
            self.query = query
            self.hasBody = hasBody
            self.contentType = contentType
        }
    }

    private static let templates = [
        Operation("get", "remoteConfig", "A template", query: ["versionNumber"]),
        Operation(
            "put",
            "remoteConfig",
            "Publishes a template over the version that If-Match names",
            query: ["validate_only"],
            hasBody: true
        ),
        Operation(
            "get",
            "remoteConfig:listVersions",
            "Versions, newest first",
            query: ["pageSize", "pageToken", "endVersionNumber", "startTime", "endTime"]
        ),
        Operation(
            "post",
            "remoteConfig:rollback",
            "Makes an older version current, as a new one",
            query: ["versionNumber"],
            hasBody: true
        ),
        Operation(
            "get",
            "remoteConfig:downloadDefaults",
            "The default values as a file",
            query: ["format"],
            contentType: "*/*"
        ),
    ]

    private static func paths(withOperations: Bool) -> JSONObject {
        let project = "/v1/projects/{project}"
        let firebase = "\(project)/namespaces/firebase"
        let server = "\(project)/namespaces/firebase-server"
        let stream = Operation(
            "get",
            "remoteConfig:stream",
            "Server-sent events: one for each announcement",
            .client,
            query: ["lastKnownVersionNumber"],
            contentType: "text/event-stream"
        )
        var operations = [Operation("get", project, "The project that an app stands for")]
        for base in [project, firebase, server] {
            operations += templates.map { at(base, $0) }
        }
        operations += [at(project, stream), at(firebase, stream)]
        operations += [
            Operation(
                "get",
                server + "/serverRemoteConfig",
                "The template of servers, as the Admin SDKs evaluate it",
                query: ["versionNumber"]
            ),
            Operation(
                "post",
                firebase + ":fetch",
                "The values for one app instance",
                .client,
                hasBody: true
            ),
            Operation(
                "post",
                firebase + ":streamFetchInvalidations",
                "Objects, one a line: one for each announcement",
                .client,
                hasBody: true
            ),
            Operation("get", "/openapi.json", "This document", .anybody),
        ]
        if withOperations {
            operations += [
                Operation("get", "/livez", "Whether the process turns", .anybody),
                Operation("get", "/readyz", "Whether the service should get work", .anybody),
                Operation(
                    "get",
                    "/metrics",
                    "Prometheus' text",
                    .anybody,
                    contentType: "text/plain"
                ),
            ]
        }
        var paths: JSONObject = [:]
        for operation in operations {
            var path = paths[operation.path]?.object ?? [:]
            path[operation.method] = .object(object(operation))
            paths[operation.path] = .object(path)
        }
        return paths
    }

    private static func at(_ base: String, _ operation: Operation) -> Operation {
        Operation(
            operation.method,
            "\(base)/\(operation.path)",
            operation.summary,
            operation.right,
            query: operation.query,
            hasBody: operation.hasBody,
            contentType: operation.contentType
        )
    }

    private static func object(_ operation: Operation) -> JSONObject {
        var parameters: [JSONValue] = operation.query.map {
            ["name": $0, "in": "query", "schema": ["type": "string"]]
        }
        if operation.path.contains("{project}") {
            parameters.append([
                "name": "project", "in": "path", "required": true, "schema": ["type": "string"],
            ])
        }
        let security: JSONValue =
            switch operation.right {
            case .publisher: [["configToken": []], ["masterKey": []]]
            case .client: [["apiKey": []], ["apiKeyHeader": []], ["masterKey": []]]
            case .anybody: []
            }
        let good: JSONValue = [
            "description": "Done", "content": .object([operation.contentType: ["schema": [:]]]),
        ]
        let error: JSONValue = [
            "description": "Refused",
            "content": [
                "application/json": ["schema": ["$ref": "#/components/schemas/Error"]]
            ],
        ]
        var object: JSONObject = [
            "summary": operation.summary, "security": security, "parameters": .array(parameters),
            "responses": ["200": good, "default": error],
        ]
        if operation.hasBody {
            object["requestBody"] = [
                "content": ["application/json": ["schema": ["type": "object"]]]
            ]
        }
        return object
    }
}
