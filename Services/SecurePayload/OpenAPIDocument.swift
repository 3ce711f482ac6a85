import JSON
import PushStorage
import ServiceKit

/// `/openapi.json`: what this service answers.
enum OpenAPIDocument {
    /// The document; the operators' routes are in it where they stand beside ours.
    static func bytes(withOperations: Bool) -> [UInt8] {
        let document: JSONObject = [
            "openapi": "3.0.3",
            "info": [
                "title": "Carillon secure payloads", "version": .string(carillonVersion),
                "description": "Content that only its identity can fetch, rung for by an id.",
            ],
            "paths": .object(paths(withOperations: withOperations)),
            "components": [
                "securitySchemes": [
                    "basic": [
                        "type": "http", "scheme": "basic",
                        "description": .string(
                            "An app with its master key, an identity with its secret, or an "
                                + "installation with its device secret."
                        ),
                    ],
                    "token": ["type": "http", "scheme": "bearer", "bearerFormat": "JWT"],
                ],
                "schemas": .object(OpenAPISchemas.all),
            ],
        ]
        return document.bytes
    }

    /// An operation as it stands at each of its paths.
    struct Operation {
        let method: String
        let path: String
        let summary: String
        /// Whether a reader may come, by a token too.
        var isForReaders = false
        var isForAnybody = false
        var query: [JSONValue] = []
        var headers: [JSONValue] = []
        /// The schema of its body.
        var body: JSONValue?
        var needsBody = false
        /// Status, what it means, and the schema of what comes with it.
        var answers: [(status: Int, about: String, schema: JSONValue?)]
        var contentType = "application/json"
    }

    private static func paths(withOperations: Bool) -> JSONObject {
        var operations = SecureSurface.bases.flatMap { base in
            let base = base.isEmpty ? "" : "/{\(SecureSurface.appName)}"
            return (notifications + registrations).map { (base + $0.path, $0) }
        }
        var others =
            proofs + [
                Operation(
                    method: "get",
                    path: "/openapi.json",
                    summary: "This document",
                    isForAnybody: true,
                    answers: [(200, "The document", ["type": "object"])]
                )
            ]
        if withOperations { others += operatorsOwn }
        operations += others.map { ($0.path, $0) }
        var paths: JSONObject = [:]
        for (path, operation) in operations {
            var methods = paths[path]?.object ?? [:]
            methods[operation.method] = .object(object(operation, at: path))
            paths[path] = .object(methods)
        }
        return paths
    }

    private static func object(_ operation: Operation, at path: String) -> JSONObject {
        let names = path.split(separator: "/").filter { $0.hasPrefix("{") }
            .map { String($0.dropFirst().dropLast()) }
        let inPath = names.map { name -> JSONValue in
            [
                "name": .string(name), "in": "path", "required": true,
                "schema": OpenAPISchemas.ofPath(name),
            ]
        }
        var responses: JSONObject = [:]
        for answer in operation.answers {
            var response: JSONObject = ["description": .string(answer.about)]
            if let schema = answer.schema {
                response["content"] = .object([operation.contentType: ["schema": schema]])
            }
            responses[String(answer.status)] = .object(response)
        }
        if !operation.isForAnybody {
            responses["default"] = [
                "description": "Refused",
                "content": [
                    "application/problem+json": ["schema": OpenAPISchemas.reference("Problem")]
                ],
            ]
        }
        let security: JSONValue =
            operation.isForAnybody
            ? [] : operation.isForReaders ? [["basic": []], ["token": []]] : [["basic": []]]
        var object: JSONObject = [
            "summary": .string(operation.summary), "security": security,
            "parameters": .array(inPath + operation.query + operation.headers),
            "responses": .object(responses),
        ]
        if let body = operation.body {
            object["requestBody"] = [
                "required": .bool(operation.needsBody),
                "content": ["application/json": ["schema": body]],
            ]
        }
        return object
    }

    // MARK: What may be asked

    private static let installation: JSONValue = [
        "name": "installation", "in": "query",
        "description": "The device that an identity reads on, of content that is sealed to it",
        "schema": ["type": "string"],
    ]

    private static let notifications: [Operation] = {
        let all = "/api/notifications"
        let one = all + "/{id}"
        return [
            Operation(
                method: "post",
                path: all,
                summary: "Keeps content for an identity, and rings its devices",
                headers: [
                    [
                        "name": "Idempotency-Key", "in": "header",
                        "description": "A repeat gets the first answer, and nothing is rung anew",
                        "schema": OpenAPISchemas.requestKey,
                    ]
                ],
                body: OpenAPISchemas.reference("NewNotification"),
                needsBody: true,
                answers: [(201, "Kept", OpenAPISchemas.reference("Kept"))]
            ),
            Operation(
                method: "get",
                path: all,
                summary: "What waits for its reader; for the master key whatever was kept",
                isForReaders: true,
                query: [
                    [
                        "name": "identity", "in": "query", "description": "Master key only",
                        "schema": OpenAPISchemas.identity,
                    ],
                    [
                        "name": "limit", "in": "query", "description": "Master key only",
                        "schema": [
                            "type": "integer", "minimum": 1,
                            "maximum": JSONValue(SecurePayloadStore.maximumPage), "default": 100,
                        ],
                    ],
                    [
                        "name": "after", "in": "query",
                        "description": "What a page before gave as next; master key only",
                        "schema": OpenAPISchemas.cursor,
                    ],
                    installation,
                ],
                answers: [(200, "Newest first", OpenAPISchemas.reference("Page"))]
            ),
            Operation(
                method: "get",
                path: one,
                summary: "The content, for its identity; for the master key what the list shows",
                isForReaders: true,
                query: [installation],
                answers: [
                    (
                        200, "It is there",
                        [
                            "oneOf": [
                                OpenAPISchemas.reference("Notification"),
                                OpenAPISchemas.reference("Entry"),
                            ]
                        ]
                    )
                ]
            ),
            Operation(
                method: "delete",
                path: one,
                summary: "The content goes, for all devices: how one says that it has it",
                isForReaders: true,
                query: [installation],
                answers: [(204, "Gone", nil)]
            ),
        ]
    }()

    private static let registrations: [Operation] = [
        Operation(
            method: "post",
            path: "/api/register",
            summary: "The id to register a device by",
            isForReaders: true,
            query: [
                [
                    "name": "handle", "in": "query", "description": "The device's token",
                    "schema": ["type": "string"],
                ]
            ],
            answers: [(200, "An installation's object id", ["type": "string"])]
        ),
        Operation(
            method: "put",
            path: "/api/register/{id}",
            summary: "Makes or changes the caller's installation of this id",
            isForReaders: true,
            body: OpenAPISchemas.reference("Registration"),
            needsBody: true,
            answers: [(200, "Registered", nil)]
        ),
        Operation(
            method: "delete",
            path: "/api/register/{id}",
            summary: "Removes the caller's installation of this id",
            isForReaders: true,
            answers: [(200, "Not there any more", nil)]
        ),
    ]

    private static let proofs: [Operation] = {
        let secret = "/v1/identities/{identity}/secret"
        let reader = "/v1/installations/{id}/reader"
        return [
            Operation(
                method: "put",
                path: secret,
                summary: "Sets an identity's secret, or makes one",
                body: OpenAPISchemas.reference("NewSecret"),
                answers: [
                    (200, "Made, and told this once", OpenAPISchemas.reference("Secret")),
                    (204, "Set", nil),
                ]
            ),
            Operation(
                method: "delete",
                path: secret,
                summary: "The identity has no secret any more",
                answers: [(204, "Gone", nil)]
            ),
            Operation(
                method: "put",
                path: reader,
                summary: "Makes a device a reader; a secret that it had is void",
                isForReaders: true,
                body: OpenAPISchemas.reference("NewReader"),
                answers: [(200, "Its secret, told this once", OpenAPISchemas.reference("Reader"))]
            ),
            Operation(
                method: "delete",
                path: reader,
                summary: "The device's secret is void",
                isForReaders: true,
                answers: [(204, "Void", nil)]
            ),
        ]
    }()

    private static let operatorsOwn: [Operation] = [
        ("/livez", "Whether the process turns", "text/plain"),
        ("/readyz", "Whether the service should get work", "application/json"),
        ("/metrics", "Prometheus' text", "text/plain"),
    ].map { path, summary, type in
        Operation(
            method: "get",
            path: path,
            summary: summary,
            isForAnybody: true,
            answers: [(200, summary, [:])],
            contentType: type
        )
    }
}
