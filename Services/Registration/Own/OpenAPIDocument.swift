import JSON
import ServiceKit

/// `/openapi.json`: Carillon's own routes of this service. The protocols of other services that it
/// speaks are theirs to describe.
enum OpenAPIDocument {
    /// The document; the operators' routes are in it where they stand beside ours.
    static func bytes(withOperations: Bool) -> [UInt8] {
        guard !withOperations, var document = (try? JSONValue.parse(text))?.object,
            var paths = document["paths"]?.object
        else { return Array(text.utf8) }
        for path in ["/livez", "/readyz", "/metrics"] { paths[path] = nil }
        document["paths"] = .object(paths)
        return JSONValue.object(document).bytes
    }

    private static let text = """
        {
          "openapi": "3.0.3",
          "info": {
            "title": "Carillon registration",
            "version": "\(carillonVersion)",
            "description":
              "The routes that are Carillon's own."
          },
          "security": [{"basic": []}, {"appId": [], "appKey": []}],
          "paths": {
            "/v1/notifications/{id}": {
              "get": {
                "summary": "A push's ledger: what became of each delivery, counted",
                "operationId": "getNotification",
                "parameters": [{"$ref": "#/components/parameters/PushId"}],
                "responses": {
                  "200": {"description": "The ledger", "content": {"application/json": {"schema":
                    {"$ref": "#/components/schemas/Notification"}}}},
                  \(problems(400, 401, 403, 404, 429, 503))
                }
              }
            },
            "/v1/installations/{id}/export": {
              "get": {
                "summary": "Everything that is stored of a device",
                "operationId": "exportInstallation",
                "parameters": [{"$ref": "#/components/parameters/InstallationId"}],
                "responses": {
                  "200": {"description": "What is stored", "content": {"application/json":
                    {"schema": {"$ref": "#/components/schemas/Export"}}}},
                  \(problems(400, 401, 403, 404, 429, 503))
                }
              }
            },
            "/v1/installations/{id}": {
              "delete": {
                "summary": "Erases everything that is stored of a device",
                "operationId": "eraseInstallation",
                "parameters": [{"$ref": "#/components/parameters/InstallationId"}],
                "responses": {
                  "200": {"description": "The receipt: how much went, by kind",
                    "content": {"application/json": {"schema": {"$ref":
                    "#/components/schemas/Receipt"}}}},
                  \(problems(400, 401, 403, 404, 429, 503))
                }
              }
            },
            "/v1/identities/{identity}/export": {
              "get": {
                "summary": "Everything that is stored of a user and all his devices",
                "operationId": "exportIdentity",
                "parameters": [{"$ref": "#/components/parameters/Identity"}],
                "responses": {
                  "200": {"description": "What is stored", "content": {"application/json":
                    {"schema": {"$ref": "#/components/schemas/Export"}}}},
                  \(problems(400, 401, 403, 404, 429, 503))
                }
              }
            },
            "/v1/identities/{identity}": {
              "delete": {
                "summary": "Erases everything that is stored of a user and all his devices",
                "operationId": "eraseIdentity",
                "parameters": [{"$ref": "#/components/parameters/Identity"}],
                "responses": {
                  "200": {"description": "The receipt: how much went, by kind",
                    "content": {"application/json": {"schema": {"$ref":
                    "#/components/schemas/Receipt"}}}},
                  \(problems(400, 401, 403, 404, 429, 503))
                }
              }
            },
            "/livez": {
              "get": {
                "summary": "Whether the process turns",
                "operationId": "livez",
                "security": [],
                "responses": {"200": {"description": "It does", "content": {"text/plain":
                  {"schema": {"type": "string"}}}}}
              }
            },
            "/readyz": {
              "get": {
                "summary": "Whether the service should get work",
                "operationId": "readyz",
                "security": [],
                "responses": {
                  "200": {"description": "It should", "content": {"application/json": {"schema":
                    {"$ref": "#/components/schemas/Readiness"}}}},
                  "503": {"description": "It should not; names what is not ready", "content":
                    {"application/json": {"schema": {"$ref": "#/components/schemas/Readiness"}}}}
                }
              }
            },
            "/metrics": {
              "get": {
                "summary": "Prometheus' text",
                "operationId": "metrics",
                "security": [],
                "responses": {"200": {"description": "The figures", "content": {"text/plain":
                  {"schema": {"type": "string"}}}}}
              }
            },
            "/openapi.json": {
              "get": {
                "summary": "This document",
                "operationId": "openapi",
                "security": [],
                "responses": {"200": {"description": "The document", "content":
                  {"application/json": {"schema": {"type": "object", "required": ["openapi",
                  "paths"]}}}}}
              }
            }
          },
          "components": {
            "securitySchemes": {
              "basic": {"type": "http", "scheme": "basic", "description":
                "The app's id and its master key"},
              "appId": {"type": "apiKey", "in": "header", "name": "X-LC-Id", "description":
                "The app's id"},
              "appKey": {"type": "apiKey", "in": "header", "name": "X-LC-Key", "description":
                "The master key with \\",master\\" behind it"}
            },
            "parameters": {
              "PushId": {"name": "id", "in": "path", "required": true, "schema": {"type":
                "string", "format": "uuid"}},
              "InstallationId": {"name": "id", "in": "path", "required": true, "description":
                "The object id, or LeanCloud's own installationId", "schema": {"$ref":
                "#/components/schemas/Id"}},
              "Identity": {"name": "identity", "in": "path", "required": true, "schema": {"$ref":
                "#/components/schemas/Id"}}
            },
            "schemas": {
              "Id": {"type": "string", "minLength": 1, "maxLength": 512, "pattern":
                "^[^\\\\x00-\\\\x1f\\\\x7f]+$"},
              "Count": {"type": "integer", "format": "int64", "minimum": 0},
              "Time": {"type": "string", "format": "date-time"},
              "Problem": {
                "type": "object",
                "description": "RFC 9457",
                "required": ["title", "status"],
                "properties": {"title": {"type": "string"}, "status": {"type": "integer"},
                  "detail": {"type": "string"}}
              },
              "Readiness": {
                "type": "object",
                "required": ["status"],
                "properties": {
                  "status": {"type": "string", "enum": ["ready", "not ready"]},
                  "notReady": {"type": "array", "items": {"type": "object", "required": ["part"],
                    "properties": {"part": {"type": "string"}, "reason": {"type": "string",
                    "description": "Told on OPERATIONS_PORT only"}}}}
                }
              },
              "Notification": {
                "type": "object",
                "description":
                  "targeted = delivered + failed + expired + suppressed + inDoubt + pending",
                "required": ["pushId", "app", "eventId", "eventSource", "status", "targeted",
                  "delivered", "failed", "expired", "suppressed", "inDoubt", "pending",
                  "invalidTokens", "confirmed", "received", "opens", "createdAt", "updatedAt"],
                "properties": {
                  "pushId": {"type": "string", "format": "uuid"},
                  "app": {"type": "string"},
                  "eventId": {"type": "string"},
                  "eventSource": {"type": "string"},
                  "status": {"type": "string", "enum": ["queued", "scheduled", "planning",
                    "sending", "done", "cancelled", "failed"]},
                  "targeted": {"$ref": "#/components/schemas/Count"},
                  "delivered": {"$ref": "#/components/schemas/Count"},
                  "failed": {"$ref": "#/components/schemas/Count"},
                  "expired": {"$ref": "#/components/schemas/Count"},
                  "suppressed": {"$ref": "#/components/schemas/Count"},
                  "inDoubt": {"$ref": "#/components/schemas/Count"},
                  "pending": {"$ref": "#/components/schemas/Count"},
                  "invalidTokens": {"$ref": "#/components/schemas/Count"},
                  "confirmed": {"type": "integer", "minimum": 0, "description":
                    "Readers of the secure payload that it rings for; beside the balance"},
                  "received": {"type": "integer", "minimum": 0, "description":
                    "Devices that reported that it came; beside the balance"},
                  "opens": {"type": "integer", "minimum": 0, "description":
                    "Devices that reported that it was opened; beside the balance"},
                  "failures": {"type": "array", "maxItems": 10, "items": {
                    "type": "object", "required": ["provider", "reason", "count"],
                    "properties": {
                      "provider": {"type": "string", "enum": ["apns", "fcm", "wns", "mpns"]},
                      "reason": {"type": "string"},
                      "count": {"$ref": "#/components/schemas/Count"}}}},
                  "shards": {"$ref": "#/components/schemas/Count"},
                  "finishedShards": {"$ref": "#/components/schemas/Count"},
                  "error": {"type": "string"},
                  "notes": {"type": "object"},
                  "createdAt": {"$ref": "#/components/schemas/Time"},
                  "updatedAt": {"$ref": "#/components/schemas/Time"},
                  "releaseAt": {"$ref": "#/components/schemas/Time"},
                  "expiresAt": {"$ref": "#/components/schemas/Time"},
                  "finishedAt": {"$ref": "#/components/schemas/Time"}
                }
              },
              "Export": {
                "type": "object",
                "required": ["app", "kind", "id", "exportedAt", "installations", "configFetches",
                  "identity", "securePayloads", "secureReaders", "secureSecrets", "syncDatasets",
                  "syncDevices", "ingestObjects", "pushReceipts", "deliveries", "pushes",
                  "auditEntries", "truncated"],
                "properties": {
                  "app": {"type": "string"},
                  "kind": {"type": "string", "enum": ["installation", "identity"]},
                  "id": {"type": "string"},
                  "exportedAt": {"$ref": "#/components/schemas/Time"},
                  "installations": {"type": "array", "items": {"type": "object", "required":
                    ["objectId", "createdAt", "updatedAt"]}},
                  "configFetches": {"type": "array", "items": {"type": "object", "required":
                    ["objectId", "version", "fetchedAt"]}},
                  "identity": {"type": "object", "nullable": true, "required": ["objectId"]},
                  "securePayloads": {"type": "array", "description": "Without their content",
                    "items": {"type": "object", "required":
                    ["Id", "identity", "pushId", "state", "Read", "readAt", "createdAt", "expiresAt",
                    "readOnce", "sealed"]}},
                  "secureReaders": {"type": "array", "items": {"type": "object", "required":
                    ["objectId", "hasSealingKey", "createdAt"]}},
                  "secureSecrets": {"type": "array", "items": {"type": "object", "required":
                    ["setAt"]}},
                  "syncDatasets": {"type": "array", "description": "Of an identity, with records",
                    "items": {"type": "object", "required": ["identityPoolId", "datasetName",
                    "syncCount", "records", "createdAt", "updatedAt"]}},
                  "syncDevices": {"type": "array", "items": {"type": "object", "required":
                    ["identityPoolId", "identityId", "deviceId", "platform", "installation",
                    "subscriptions", "registeredAt"]}},
                  "ingestObjects": {"type": "array", "description": "What devices sent about it",
                    "items": {"type": "object", "required": ["type", "receivedAt",
                    "schemaVersion", "object"]}},
                  "pushReceipts": {"type": "array", "items": {"type": "object", "required":
                    ["push", "kind", "installation", "at"]}},
                  "deliveries": {"type": "array", "items": {"type": "object", "required":
                    ["pushId", "provider", "outcome", "attempts"]}},
                  "pushes": {"type": "array", "items": {"type": "object", "required": ["pushId",
                    "status", "request"]}},
                  "auditEntries": {"type": "array", "items": {"type": "object", "required": ["at",
                    "actor", "action", "targets", "status"]}},
                  "truncated": {"type": "boolean", "description":
                    "There are more than 10000 of something, or more than 16 MiB"}
                }
              },
              "Receipt": {
                "type": "object",
                "required": ["app", "kind", "subject", "erasedAt", "erased", "inFlight"],
                "properties": {
                  "app": {"type": "string"},
                  "kind": {"type": "string", "enum": ["installation", "identity"]},
                  "subject": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description":
                    "SHA-256 of <app>/<kind>/<id>"},
                  "erasedAt": {"$ref": "#/components/schemas/Time"},
                  "erased": {"type": "object", "required": ["installations",
                    "configFetches", "identities", "deliveries", "endedDeliveries", "pushes",
                    "outboxRecords", "eventKeys", "shards", "securePayloads", "secureReaders",
                    "secureSecrets", "syncDatasets", "syncRecords", "syncDevices", "syncSubscriptions",
                    "ingestObjects", "pushReceipts", "auditEntries"], "additionalProperties": {"$ref":
                    "#/components/schemas/Count"}},
                  "inFlight": {"type": "integer", "minimum": 0, "description":
                    "Broadcasts that were reaching it just then; not 0: erase once more"}
                }
              }
            },
            "responses": {
              \(responses)
            }
          }
        }
        """

    private static let statuses: [(status: Int, description: String)] = [
        (400, "The request cannot be read, or the id is none"),
        (401, "The app's id or its key is missing or wrong"), (403, "The app key was given"),
        (404, "There is nothing of that id, or at that path"), (429, "Too many requests"),
        (503, "The service cannot answer now"),
    ]

    private static func problems(_ wanted: Int...) -> String {
        wanted.map { "\"\($0)\": {\"$ref\": \"#/components/responses/Problem\($0)\"}" }
            .joined(separator: ", ")
    }

    private static var responses: String {
        statuses.map { status, description in
            """
            "Problem\(status)": {"description": "\(description)", \
            "content": {"application/problem+json": \
            {"schema": {"$ref": "#/components/schemas/Problem"}}}}
            """
        }.joined(separator: ",\n")
    }
}
