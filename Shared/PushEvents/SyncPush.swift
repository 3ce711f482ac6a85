import JSON
package import PushCore

/// The silent push that notifies devices of a dataset's new count, in the shapes that Cognito's clients
/// read (compat sheet, section 6): five keys, all strings; at the top of FCM's data, under `data` beside
/// `aps` on APNs, as a raw body on Windows.
package struct SyncPush: Sendable, Equatable {
    package var app: String
    package var pool: String
    package var identity: String
    package var dataset: String
    package var syncCount: Int
    package var installations: [String]
    /// The topic for devices that name none of their own.
    package var apnsTopic: String?
    /// The start of the bulk publish that it is part of.
    package var bulkStartedAt: Instant?

    /// The maximum of devices in one push request; more get several.
    private static let devicesAtOnce = 1000
    /// A device that was off for longer synchronizes when its app starts.
    private static let lifetimeSeconds = 86_400

    package init(
        app: String,
        pool: String,
        identity: String,
        dataset: String,
        syncCount: Int,
        installations: [String],
        apnsTopic: String? = nil,
        bulkStartedAt: Instant? = nil
    ) {
        self.app = app
        self.pool = pool
        self.identity = identity
        self.dataset = dataset
        self.syncCount = syncCount
        self.installations = installations
        self.apnsTopic = apnsTopic
        self.bulkStartedAt = bulkStartedAt
    }

    /// Returns the records of `push.requests` that send it: usually one, several for very many devices.
    package func records(
        at now: Instant,
        _ topics: KafkaTopics,
        digest: Digest
    ) -> [OutgoingRecord] {
        stride(from: 0, to: installations.count, by: Self.devicesAtOnce).map { start in
            let some = Array(installations.dropFirst(start).prefix(Self.devicesAtOnce))
            return PushEvent.encode(
                request(to: some, at: now, digest: digest),
                app: app,
                source: PushIdentity.syncSource,
                eventID: start == 0 ? eventID : eventID + "#\(start / Self.devicesAtOnce)",
                topics: topics
            )
        }
    }

    var eventID: String {
        let id = "\(pool)/\(identity)/\(dataset)/\(syncCount)"
        return bulkStartedAt.map { "\(id)/\($0.milliseconds)" } ?? id
    }

    private func request(
        to installations: [String],
        at now: Instant,
        digest: Digest
    ) -> JSONObject {
        let data: JSONObject = [
            "source": "cognito-sync", "identityPoolId": .string(pool),
            "identityId": .string(identity), "datasetName": .string(dataset),
            "syncCount": .string(String(syncCount)),
        ]
        let body = JSONValue.string(String(decoding: data.bytes, as: UTF8.self))
        let collapseID = PushIdentity.uuidText(
            digest(Array("sync/\(pool)/\(identity)/\(dataset)".utf8))
        )
        var request: JSONObject = [
            "installations": .array(installations.map(JSONValue.string)),
            "native": [
                "apns": [
                    "headers": [
                        "apns-push-type": "background", "apns-priority": "5",
                        "apns-collapse-id": .string(collapseID),
                    ],
                    "payload": ["aps": ["content-available": 1], "data": .object(data)],
                ],
                "fcm": [
                    "message": ["data": .object(data), "android": ["priority": "NORMAL"]]
                ],
                "wns": ["type": "wns/raw", "body": body],
                "mpns": ["body": body],
            ],
            "expiration_time": .string(
                now.adding(milliseconds: Int64(Self.lifetimeSeconds) * 1000).iso8601
            ),
        ]
        if let apnsTopic { request["topic"] = .string(apnsTopic) }
        return request
    }
}
