import JSON
import PushCore

/// The shapes of what is sent and answered, for `/openapi.json`.
enum OpenAPISchemas {
    static func reference(_ name: String) -> JSONValue {
        ["$ref": .string("#/components/schemas/\(name)")]
    }

    static let identity: JSONValue = [
        "type": "string", "minLength": 1, "maxLength": JSONValue(SecureIdentity.maximumBytes),
        "pattern": "^[^\\u0000]+$", "description": "At most 512 bytes",
    ]
    static let requestKey: JSONValue = [
        "type": "string", "minLength": 1,
        "maxLength": JSONValue(SecureSurface.maximumKeyLength),
    ]
    static let cursor: JSONValue = [
        "type": "string", "pattern": "^(0|[1-9][0-9]{0,14})-([0-9a-f]{32}|[1-9][0-9]{0,8})$",
    ]
    private static let time: JSONValue = ["type": "string", "format": "date-time"]
    private static let id: JSONValue = [
        "description": "A number where the app has secure-ids=int31",
        "oneOf": [
            ["type": "string", "pattern": "^[0-9a-f]{32}$"],
            ["type": "integer", "minimum": 1, "maximum": 2_147_483_647],
        ],
    ]

    static func ofPath(_ name: String) -> JSONValue {
        switch name {
        case "app": ["type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"]
        case "identity":
            [
                "type": "string", "minLength": 1,
                "maxLength": JSONValue(SecureIdentity.maximumBytes),
                "pattern": "^[^\\u0000:]+$",
            ]
        default: ["type": "string", "minLength": 1]
        }
    }

    static let all: JSONObject = [
        "Problem": .object(
            object(
                ["title": ["type": "string"], "status": ["type": "integer"]],
                optional: ["detail": ["type": "string"]]
            )
        ),
        "NewNotification": .object(newNotification),
        "Kept": .object(object(["Id": id, "pushId": ["type": "string"], "expiresAt": time])),
        "Notification": .object(
            object(
                ["Id": id, "Payload": ["type": "string"], "Read": ["type": "boolean"]],
                optional: ["Sealed": ["type": "string", "enum": [.string(SealedForDevice.name)]]]
            )
        ),
        "Entry": .object(entry),
        "Page": .object(
            object(
                ["notifications": ["type": "array", "items": ["type": "object"]]],
                optional: ["next": ["type": "string", "nullable": true]]
            )
        ),
        "Registration": .object(registration),
        "NewSecret": .object(
            closed(
                object(
                    [:],
                    optional: [
                        "secret": [
                            "type": "string",
                            "minLength": JSONValue(IdentitySecret.byteCounts.lowerBound),
                            "maxLength": JSONValue(IdentitySecret.byteCounts.upperBound),
                            "description": "8 to 1024 bytes, not beginning with cds_",
                            "nullable": true,
                        ]
                    ]
                )
            )
        ),
        "Secret": .object(
            object(["identity": ["type": "string"], "secret": ["type": "string"]])
        ),
        "NewReader": .object(
            closed(
                object(
                    [:],
                    optional: [
                        "sealingKey": [
                            "type": "string", "pattern": "^[A-Za-z0-9_-]{43}$", "nullable": true,
                            "description": "A public key of X25519, 32 bytes in base64url",
                        ]
                    ]
                )
            )
        ),
        "Reader": .object(
            object([
                "installationId": ["type": "string"], "identity": ["type": "string"],
                "deviceSecret": ["type": "string", "pattern": "^cds_[A-Za-z0-9_-]{43}$"],
            ])
        ),
    ]

    private static let newNotification = closed(
        object(
            [
                "identity": identity,
                "payload": [
                    "type": "string", "minLength": 1,
                    "maxLength": JSONValue(NewNotification.maximumPayloadBytes),
                    "description": "At most 64 KiB",
                ],
            ],
            optional: [
                "visibleText": [
                    "type": "string", "nullable": true,
                    "maxLength": JSONValue(NewNotification.maximumVisibleBytes),
                    "pattern": "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f]*$",
                    "description": "Goes through the providers in the clear; at most 1 KiB",
                ],
                "tag": [
                    "type": "string", "nullable": true, "minLength": 1,
                    "maxLength": JSONValue(TagExpression.maximumBytes),
                    "description": "A tag expression, which narrows who is rung",
                ],
                "expiresInSeconds": [
                    "type": "integer", "nullable": true,
                    "minimum": JSONValue(NewNotification.lifetimes.lowerBound),
                    "maximum": JSONValue(NewNotification.lifetimes.upperBound),
                    "default": JSONValue(NewNotification.usualLifetime),
                ],
                "readOnce": ["type": "boolean", "nullable": true, "default": false],
                "sealed": ["type": "boolean", "nullable": true, "default": false],
            ]
        )
    )

    private static let entry = object([
        "Id": id, "identity": ["type": "string"], "pushId": ["type": "string"],
        "state": ["type": "string", "enum": ["waiting", "read", "deleted", "expired"]],
        "Read": ["type": "boolean"], "readAt": ["type": "string", "nullable": true],
        "createdAt": time, "expiresAt": time, "readOnce": ["type": "boolean"],
        "sealed": ["type": "boolean"],
    ])

    private static let registration = object(
        [
            "Platform": ["type": "string", "enum": ["mpns", "wns", "apns", "gcm"]],
            "Handle": ["type": "string", "minLength": 1],
        ],
        optional: [
            "Tags": [
                "type": "array", "nullable": true,
                "maxItems": JSONValue(DeviceRegistration.maximumTags),
                "items": ["type": "string"],
            ]
        ]
    )

    private static func object(
        _ needed: JSONObject,
        optional: JSONObject = [:]
    ) -> JSONObject {
        var properties = needed
        for (name, schema) in optional { properties[name] = schema }
        var object: JSONObject = ["type": "object", "properties": .object(properties)]
        if !needed.isEmpty { object["required"] = .array(needed.keys.map(JSONValue.string)) }
        return object
    }

    private static func closed(_ object: JSONObject) -> JSONObject {
        var object = object
        object["additionalProperties"] = false
        return object
    }
}
