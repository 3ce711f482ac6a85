import JSON
import ServiceKit

/// `/openapi.json`: what this service answers.
enum OpenAPIDocument {
    /// The document; the operators' routes are in it where they stand beside ours.
    static func bytes(withOperations: Bool) -> [UInt8] {
        let document: JSONObject = [
            "openapi": "3.0.3",
            "info": [
                "title": "Carillon ingest", "version": .string(carillonVersion),
                "description": "One way in: objects and events of devices.",
            ],
            "paths": .object(paths(withOperations: withOperations)),
            "components": ["securitySchemes": security, "schemas": schemas],
        ]
        return document.bytes
    }

    private static let security: JSONValue = [
        "appKey": [
            "type": "http", "scheme": "basic",
            "description": "The app key as user, without a password",
        ],
        "apiKey": ["type": "apiKey", "in": "header", "name": "apiKey"],
    ]

    private static let schemas: JSONValue = {
        let texts: JSONValue = ["type": "array", "items": ["type": "string"]]
        let refused: JSONValue = [
            "type": "array",
            "items": [
                "type": "object", "required": ["index", "pointer", "reason"],
                "properties": [
                    "index": ["type": "integer"], "_id": ["type": "string"],
                    "pointer": ["type": "string"], "reason": ["type": "string"],
                ],
            ],
        ]
        return [
            "Answer": [
                "type": "object", "required": ["accepted", "duplicates", "refused"],
                "properties": ["accepted": texts, "duplicates": texts, "refused": refused],
            ],
            "Problem": [
                "type": "object", "required": ["title", "status"],
                "properties": [
                    "title": ["type": "string"], "status": ["type": "integer"],
                    "detail": ["type": "string"], "refused": refused,
                ],
            ],
            "Segment": [
                "type": "object", "required": ["success"],
                "properties": ["success": ["type": "boolean"]],
            ],
            "SegmentError": [
                "type": "object", "required": ["code", "message"],
                "properties": ["code": ["type": "string"], "message": ["type": "string"]],
            ],
            "AtlasError": [
                "type": "object", "required": ["error", "error_code"],
                "properties": ["error": ["type": "string"], "error_code": ["type": "string"]],
            ],
            "Inserted": [
                "type": "object",
                "properties": ["insertedId": [:], "insertedIds": ["type": "array", "items": [:]]],
            ],
        ]
    }()

    /// A form of answers: the status and schema of good ones, and what refusals look like.
    private struct Form {
        let status: String
        let schema: String?
        let error: String
        let errorType: String
    }

    private static let native = Form(
        status: "200",
        schema: "Answer",
        error: "Problem",
        errorType: "application/problem+json"
    )
    private static let segment = Form(
        status: "200",
        schema: "Segment",
        error: "SegmentError",
        errorType: "application/json"
    )
    private static let events = Form(
        status: "204",
        schema: nil,
        error: "Problem",
        errorType: "application/problem+json"
    )
    private static let atlas = Form(
        status: "201",
        schema: "Inserted",
        error: "AtlasError",
        errorType: "application/json"
    )

    private static func paths(withOperations: Bool) -> JSONObject {
        let anything: JSONValue = ["schema": [:]]
        var paths: JSONObject = [
            "/v1/ingest/{type}": post(
                "Takes in one object, an array, or one a line",
                native,
                content: ["application/json": anything, "application/x-ndjson": anything],
                parameter: "type"
            ),
            "/events": post(
                "Takes in CloudEvents: binary, structured or batched",
                events,
                content: [
                    "application/cloudevents+json": anything,
                    "application/cloudevents-batch+json": anything,
                ]
            ),
        ]
        for path in [
            "batch", "b", "import", "track", "identify", "group", "page", "screen", "alias",
        ]
            + ["t", "i", "g", "p", "s", "a"]
        {
            let isBatch = ["batch", "b", "import"].contains(path)
            paths["/v1/" + path] = post(
                isBatch ? "Takes in a batch of Segment's calls" : "Takes in one of them",
                segment,
                content: ["application/json": ["schema": ["type": "object"]]]
            )
        }
        for path in ["v1", "beta"].flatMap({
            ["\($0)/action/insertOne", "\($0)/action/insertMany"]
        }) {
            paths["/app/{appId}/endpoint/data/" + path] = post(
                "Takes in documents as Atlas' Data API does",
                atlas,
                content: [
                    "application/json": ["schema": ["type": "object"]],
                    "application/ejson": ["schema": ["type": "object"]],
                ],
                parameter: "appId"
            )
        }
        var operations = [("/openapi.json", "This document", "application/json")]
        if withOperations {
            operations += [
                ("/livez", "Whether the process turns", "text/plain"),
                ("/readyz", "Whether the service should get work", "application/json"),
                ("/metrics", "Prometheus' text", "text/plain"),
            ]
        }
        for (path, summary, contentType) in operations {
            paths[path] = [
                "get": [
                    "summary": .string(summary), "security": [],
                    "responses": [
                        "200": [
                            "description": "Done",
                            "content": .object([contentType: ["schema": [:]]]),
                        ],
                        "default": ["description": "Refused"],
                    ],
                ]
            ]
        }
        return paths
    }

    private static func post(
        _ summary: JSONValue,
        _ form: Form,
        content: JSONObject,
        parameter: String? = nil
    ) -> JSONValue {
        func reference(_ name: String) -> JSONValue {
            ["schema": ["$ref": .string("#/components/schemas/" + name)]]
        }
        var good: JSONObject = ["description": "Kafka has it"]
        if let schema = form.schema {
            var forms: JSONObject = ["application/json": reference(schema)]
            if schema == atlas.schema { forms["application/ejson"] = reference(schema) }
            good["content"] = .object(forms)
        }
        let parameters: [JSONValue] =
            parameter.map { name in
                [
                    [
                        "name": .string(name), "in": "path", "required": true,
                        "schema": ["type": "string"],
                    ]
                ]
            } ?? []
        return [
            "post": [
                "summary": summary, "parameters": .array(parameters),
                "security": [["appKey": []], ["apiKey": []]],
                "requestBody": ["content": .object(content)],
                "responses": .object(
                    [
                        (form.status, .object(good)),
                        (
                            "default",
                            [
                                "description": "Refused",
                                "content": .object([form.errorType: reference(form.error)]),
                            ]
                        ),
                    ].reduce(into: JSONObject()) { $0[$1.0] = $1.1 }
                ),
            ]
        ]
    }
}
