import Gateway
import JSON
import PushCore
import SecureStorage

/// The schemas of requests and responses, for `/openapi.json`.
enum OpenAPISchemas {
    static let identity: JSONValue = [
        "type": "string", "minLength": 1, "maxLength": JSONValue(SecureIdentity.maximumBytes),
        "pattern": "^[^\\u0000]+$", "description": "At most 512 bytes",
    ]
    static let requestKey: JSONValue = [
        "type": "string", "minLength": 1,
        "maxLength": JSONValue(NewNotification.maximumKeyLength),
    ]
    static let cursor: JSONValue = [
        "type": "string", "pattern": "^(0|[1-9][0-9]{0,14})-([0-9a-f]{32}|[1-9][0-9]{0,8})$",
    ]
    static let pageLimit: JSONValue = [
        "type": "integer", "minimum": 1, "maximum": JSONValue(SecurePayloadStore.maximumPage),
        "default": 100,
    ]
    private static let text: JSONValue = ["type": "string"]
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
        "NewNotification": newNotification,
        "Kept": .schema(ofObject: ["Id": id, "pushId": text, "expiresAt": time]),
        "Notification": .schema(
            ofObject: ["Id": id, "Payload": text, "Read": ["type": "boolean"]],
            optional: ["Sealed": ["type": "string", "enum": [.string(SealedForDevice.name)]]]
        ),
        "Entry": entry,
        "Page": .schema(
            ofObject: ["notifications": .schema(ofArray: ["type": "object"])],
            optional: ["next": ["type": "string", "nullable": true]]
        ),
        "Registration": registration,
        "NewSecret": .schema(
            ofObject: [:],
            optional: [
                "secret": [
                    "type": "string",
                    "minLength": JSONValue(IdentitySecret.byteCounts.lowerBound),
                    "maxLength": JSONValue(IdentitySecret.byteCounts.upperBound),
                    "description": "8 to 1024 bytes, not beginning with cds_",
                    "nullable": true,
                ]
            ],
            isClosed: true
        ),
        "Secret": .schema(ofObject: ["identity": text, "secret": text]),
        "NewReader": .schema(
            ofObject: [:],
            optional: [
                "sealingKey": [
                    "type": "string", "pattern": "^[A-Za-z0-9_-]{43}$", "nullable": true,
                    "description": "A public key of X25519, 32 bytes in base64url",
                ]
            ],
            isClosed: true
        ),
        "Reader": .schema(ofObject: [
            "installationId": text, "identity": text,
            "deviceSecret": ["type": "string", "pattern": "^cds_[A-Za-z0-9_-]{43}$"],
        ]),
    ]

    private static let newNotification = JSONValue.schema(
        ofObject: [
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
                "description": "A tag expression that narrows which devices are notified",
            ],
            "expiresInSeconds": [
                "type": "integer", "nullable": true,
                "minimum": JSONValue(NewNotification.lifetimes.lowerBound),
                "maximum": JSONValue(NewNotification.lifetimes.upperBound),
                "default": JSONValue(NewNotification.usualLifetime),
            ],
            "readOnce": ["type": "boolean", "nullable": true, "default": false],
            "sealed": ["type": "boolean", "nullable": true, "default": false],
        ],
        isClosed: true
    )

    private static let entry = JSONValue.schema(ofObject: [
        "Id": id, "identity": text, "pushId": text,
        "state": ["type": "string", "enum": ["waiting", "read", "deleted", "expired"]],
        "Read": ["type": "boolean"], "readAt": ["type": "string", "nullable": true],
        "createdAt": time, "expiresAt": time, "readOnce": ["type": "boolean"],
        "sealed": ["type": "boolean"],
    ])

    private static let registration = JSONValue.schema(
        ofObject: [
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
}
