import Explain
import Gateway
import JSON
import ServiceShell

extension NativeSurface {
    static let openAPI = OpenAPI(
        "Carillon registration",
        "The routes that are Carillon's own. The protocols of other services are theirs to describe.",
        securitySchemes: [
            "basic": [
                "type": "http", "scheme": "basic",
                "description": "The app's id and its master key",
            ],
            "appId": [
                "type": "apiKey", "in": "header", "name": "X-LC-Id", "description": "The app's id",
            ],
            "appKey": [
                "type": "apiKey", "in": "header", "name": "X-LC-Key",
                "description": "The master key with \",master\" behind it",
            ],
        ],
        schemas: [
            "Notification": notification, "Export": export, "Receipt": receipt,
            "Explanation": explanation,
        ],
        pathSchema: { _ in id }
    )

    static let uuid: JSONValue = ["type": "string", "format": "uuid"]
    private static let text: JSONValue = ["type": "string"]
    private static let time: JSONValue = ["type": "string", "format": "date-time"]
    static let id: JSONValue = [
        "type": "string", "minLength": 1, "maxLength": 512,
        "pattern": "^[^\\x00-\\x1f\\x7f]+$",
    ]
    private static let kind: JSONValue = [
        "type": "string", "enum": ["installation", "identity"],
    ]

    private static func count(_ note: String? = nil) -> JSONValue {
        var schema: JSONObject = ["type": "integer", "format": "int64", "minimum": 0]
        if let note { schema["description"] = .string(note) }
        return .object(schema)
    }

    /// Returns the schema of a list of objects with these properties, and maybe others.
    private static func list(of names: String..., note: String? = nil) -> JSONValue {
        var schema: JSONObject = [
            "type": "array",
            "items": ["type": "object", "required": .array(names.map(JSONValue.string))],
        ]
        if let note { schema["description"] = .string(note) }
        return .object(schema)
    }

    private static let notification: JSONValue = {
        let counts = [
            "targeted", "delivered", "failed", "expired", "suppressed", "inDoubt", "pending",
            "invalidTokens",
        ]
        var needed: JSONObject = [
            "pushId": uuid, "app": text, "eventId": text,
            "eventSource": text,
            "status": [
                "type": "string",
                "enum": [
                    "queued", "scheduled", "planning", "sending", "done", "cancelled", "failed",
                ],
            ],
        ]
        for name in counts { needed[name] = count() }
        needed["confirmed"] = count(
            "Readers of the secure payload that it announces; not part of the ledger's sum"
        )
        needed["received"] = count("Devices that reported that it came; beside the balance")
        needed["opens"] = count("Devices that reported that it was opened; beside the balance")
        needed["createdAt"] = time
        needed["updatedAt"] = time
        let failure = JSONValue.schema(ofObject: [
            "provider": ["type": "string", "enum": ["apns", "fcm", "wns", "mpns"]],
            "reason": text, "count": count(),
        ])
        return .schema(
            ofObject: needed,
            optional: [
                "failures": ["type": "array", "maxItems": 10, "items": failure],
                "shards": count(), "finishedShards": count(), "error": text,
                "notes": ["type": "object"], "releaseAt": time, "expiresAt": time,
                "finishedAt": time,
            ]
        )
    }()

    private static let export = JSONValue.schema(ofObject: [
        "app": text, "kind": kind, "id": text, "exportedAt": time,
        "installations": list(of: "objectId", "createdAt", "updatedAt"),
        "configFetches": list(of: "objectId", "version", "fetchedAt"),
        "identity": ["type": "object", "nullable": true, "required": ["objectId"]],
        "securePayloads": list(
            of: "Id",
            "identity",
            "pushId",
            "state",
            "Read",
            "readAt",
            "createdAt",
            "expiresAt",
            "readOnce",
            "sealed",
            note: "Without their content"
        ),
        "secureReaders": list(of: "objectId", "hasSealingKey", "createdAt"),
        "secureSecrets": list(of: "setAt"),
        "syncDatasets": list(
            of: "identityPoolId",
            "datasetName",
            "syncCount",
            "records",
            "createdAt",
            "updatedAt",
            note: "Of an identity, with records"
        ),
        "syncDevices": list(
            of: "identityPoolId",
            "identityId",
            "deviceId",
            "platform",
            "installation",
            "subscriptions",
            "registeredAt"
        ),
        "connectionMessages": list(of: "objectId", "id", "data", "storedAt", "expiresAt"),
        "ingestObjects": list(
            of: "type",
            "receivedAt",
            "schemaVersion",
            "object",
            note: "What devices sent about it"
        ),
        "pushReceipts": list(of: "push", "kind", "installation", "at"),
        "deliveries": list(of: "pushId", "provider", "outcome", "attempts"),
        "pushes": list(of: "pushId", "status", "request"),
        "auditEntries": list(of: "at", "actor", "action", "targets", "status"),
        "truncated": [
            "type": "boolean",
            "description": "There are more than 10000 of something, or more than 16 MiB",
        ],
    ])

    private static let receipt: JSONValue = {
        let erased: [JSONValue] = [
            "installations", "configFetches", "identities", "deliveries", "endedDeliveries",
            "pushes", "outboxRecords", "eventKeys", "shards", "securePayloads", "secureReaders",
            "secureSecrets", "syncDatasets", "syncRecords", "syncDevices", "syncSubscriptions",
            "connectionMessages", "ingestObjects", "pushReceipts", "auditEntries",
        ]
        return .schema(ofObject: [
            "app": text, "kind": kind,
            "subject": [
                "type": "string", "pattern": "^[0-9a-f]{64}$",
                "description": "SHA-256 of <app>/<kind>/<id>",
            ],
            "erasedAt": time,
            "erased": [
                "type": "object", "required": .array(erased), "additionalProperties": count(),
            ],
            "inFlight": count("Broadcasts that were reaching it just then; not 0: erase once more"),
        ])
    }()

    private static let phrase = JSONValue.schema(ofObject: [
        "text": text, "template": text, "values": ["type": "object"],
    ])

    private static let explanation: JSONValue = {
        let reasons = Explanation.Reason.allCases.map { JSONValue.string($0.rawValue) }
        return .schema(
            ofObject: [
                "app": text, "installation": text, "asOf": time,
                "reason": ["type": "string", "enum": .array(reasons)],
                "sentence": phrase, "nextStep": phrase, "notes": .schema(ofArray: phrase),
                "steps": list(of: "step", "question", "state", "summary", "facts"),
                "audience": list(
                    of: "condition",
                    "now",
                    "then",
                    note: "For the device now, and when the audience was chosen; null: not stored"
                ),
                "attempts": list(of: "attempt", "provider", "at"),
                "causes": list(of: "rank", "cause", "why"),
            ],
            optional: ["pushId": uuid, "audienceAt": time, "payload": ["type": "object"]]
        )
    }()
}
