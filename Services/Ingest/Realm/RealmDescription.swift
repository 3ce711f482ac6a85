import Gateway
import JSON

/// The descriptions of the routes of Realm's clients, for `/openapi.json`.
enum RealmDescription {
    static let securitySchemes: JSONObject = [
        "realmAccess": [
            "type": "http", "scheme": "bearer",
            "description": "The access token of a Realm client's user",
        ],
        "realmRefresh": [
            "type": "http", "scheme": "bearer",
            "description": "The refresh token of a Realm client's user",
        ],
        "realmSocket": [
            "type": "apiKey", "in": "query", "name": "baas_at",
            "description": "The access token of a Realm client's user",
        ],
    ]

    static let schemas: JSONObject = {
        let text: JSONValue = ["type": "string"]
        return [
            "RealmLocation": .schema(ofObject: [
                "deployment_model": text, "location": text, "hostname": text, "ws_hostname": text,
            ]),
            "RealmLogin": .schema(ofObject: [
                "access_token": text, "refresh_token": text, "user_id": text, "device_id": text,
            ]),
            "RealmProfile": .schema(ofObject: [
                "user_id": text, "domain_id": text, "type": text, "data": ["type": "object"],
                "identities": .schema(
                    ofArray: .schema(ofObject: [
                        "id": text, "provider_type": text, "provider_id": text,
                    ])
                ),
            ]),
            "RealmAccess": .schema(ofObject: ["access_token": text]),
        ]
    }()

    private static let refusal = RouteDescription.Content.json(named: "AtlasError")

    static let location = RouteDescription(
        "Name the host of REST and of the WebSocket to a Realm client",
        for: [],
        answers: [.init(200, "The host of this request", .json(named: "RealmLocation"))],
        refusal: refusal
    )

    static let login = RouteDescription(
        "Sign a Realm client in",
        for: [],
        parameters: [
            .path(
                "provider",
                ["type": "string", "enum": ["anon-user", "custom-token", "api-key"]]
            )
        ],
        body: .json(
            .schema(
                ofObject: [:],
                optional: [
                    "token": ["description": "The JWT of custom-token"],
                    "key": ["description": "The app key, for api-key"],
                    "options": ["description": "The device, of which the versions are counted"],
                ]
            )
        ),
        needsBody: true,
        answers: [.init(200, "Its user, and two tokens", .json(named: "RealmLogin"))],
        refusal: refusal
    )

    static let profile = RouteDescription(
        "Read the user of a Realm client. A wrong token is 503, as 401 would delete data",
        for: [["realmAccess"]],
        answers: [.init(200, "The user", .json(named: "RealmProfile"))],
        refusal: refusal
    )

    static let renewal = RouteDescription(
        "Renew an access token. A wrong token is 503, as 401 would delete data",
        for: [["realmRefresh"]],
        answers: [.init(201, "Another access token", .json(named: "RealmAccess"))],
        refusal: refusal
    )

    static let logout = RouteDescription(
        "Note that a Realm client signs out. Nothing is stored, so nothing is deleted",
        for: [],
        answers: [.init(204)],
        refusal: refusal
    )

    static let deletion = RouteDescription(
        "Note that the user of a Realm client is deleted. Nothing is stored, so nothing is deleted",
        for: [],
        answers: [.init(204)],
        refusal: refusal
    )

    static let socket = RouteDescription(
        "Open the WebSocket of a Realm client, which uploads its asymmetric objects",
        for: [["realmSocket"]],
        parameters: [
            .header(
                "Sec-WebSocket-Protocol",
                ["type": "string"],
                "com.mongodb.realm-query-sync#6 to #14; the highest is chosen"
            )
        ],
        answers: [.init(101, "The chosen subprotocol is in the response")],
        refusal: refusal
    )
}
