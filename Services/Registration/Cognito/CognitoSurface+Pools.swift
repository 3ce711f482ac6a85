import Gateway
import HTTPServer
import JSON
import PushCore
import SyncStorage

/// Pools: their usage, their configuration, and a bulk publish to all devices. For developers only.
extension CognitoSurface {
    func listPools(_ request: CognitoRequest, _ caller: Caller) async throws -> HTTPServerResponse {
        let limit = try request.limit(SyncLimits.datasetsPage)
        let (pools, hasMore) = try await database.syncPools.usages(
            app: caller.appID,
            after: try request.nextToken.map { token throws(CognitoError) in
                try tokens.name(token, of: [caller.appID])
            },
            limit: limit
        )
        var answer: JSONObject = [
            "IdentityPoolUsages": .array(pools.map { .object($0.json) }),
            "MaxResults": JSONValue(limit), "Count": JSONValue(pools.count),
        ]
        if hasMore, let last = pools.last {
            answer["NextToken"] = .string(tokens.page(after: last.name, of: [caller.appID]))
        }
        return .json(.object(answer))
    }

    func poolUsage(_ request: CognitoRequest, _ caller: Caller) async throws -> HTTPServerResponse {
        let usage = try await database.syncPools.usage(
            of: try request.pool(),
            app: caller.appID
        )
        return .json(["IdentityPoolUsage": .object(usage.json)])
    }

    // MARK: Configuration

    func configuration(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let pool = try await database.syncPools.find(try request.pool(), app: caller.appID)
        return .json(.object(pool.json))
    }

    func configure(_ request: CognitoRequest, _ caller: Caller) async throws -> HTTPServerResponse {
        let pushSync = try Self.pushSync(of: request)
        let pool = try await database.syncPools.configure(
            try request.pool(),
            app: caller.appID,
            pushSync: pushSync,
            isPushing: pushSync?["ApplicationArns"]?.array?.isEmpty == false,
            streams: try Self.streams(of: request)
        )
        return .json(.object(pool.json))
    }

    private static let maximumApplications = 100

    private static func pushSync(of request: CognitoRequest) throws(CognitoError) -> JSONObject? {
        guard let value = request.body["PushSync"] else { return nil }
        guard let object = value.object else { throw .invalid("PushSync must be an object") }
        var kept: JSONObject = [:]
        if let list = present("ApplicationArns", of: object) {
            guard let names = list.array, names.count <= maximumApplications,
                names.allSatisfy({ $0.string.map(AWSName.isApplication) ?? false })
            else {
                throw .invalid(
                    "PushSync.ApplicationArns must be a list of at most \(maximumApplications) names"
                        + " such as arn:aws:sns:us-east-1:123456789012:app/GCM/my-app"
                )
            }
            kept["ApplicationArns"] = list
        }
        if let role = present("RoleArn", of: object) {
            kept["RoleArn"] = try checkedRole(role, "PushSync.RoleArn")
        }
        return kept
    }

    /// Parses the stream settings. Changes are published to Kafka only, so enabled streams are
    /// refused.
    private static func streams(of request: CognitoRequest) throws(CognitoError) -> JSONObject? {
        guard let value = request.body["CognitoStreams"] else { return nil }
        guard let object = value.object else { throw .invalid("CognitoStreams must be an object") }
        var kept: JSONObject = [:]
        if let name = present("StreamName", of: object) {
            guard let text = name.string, (1...128).contains(text.unicodeScalars.count),
                !text.utf8.contains(0)
            else { throw .invalid("CognitoStreams.StreamName must be 1 to 128 characters") }
            kept["StreamName"] = name
        }
        if let role = present("RoleArn", of: object) {
            kept["RoleArn"] = try checkedRole(role, "CognitoStreams.RoleArn")
        }
        if let status = present("StreamingStatus", of: object) {
            switch status.string {
            case "DISABLED": kept["StreamingStatus"] = status
            case "ENABLED":
                throw .invalid(
                    "CognitoStreams.StreamingStatus cannot be ENABLED: read the Kafka topic"
                        + " dataset.changes instead"
                )
            default:
                throw .invalid(
                    "CognitoStreams.StreamingStatus must be ENABLED or DISABLED, not \(status.shown)"
                )
            }
        }
        return kept
    }

    private static func present(_ member: String, of object: JSONObject) -> JSONValue? {
        object[member].flatMap { $0.isNull ? nil : $0 }
    }

    private static func checkedRole(
        _ value: JSONValue,
        _ member: String
    ) throws(CognitoError) -> JSONValue {
        guard let text = value.string, AWSName.isRole(text) else {
            throw .invalid(
                "\(member) must be a name such as arn:aws:iam::123456789012:role/sync, not "
                    + value.shown
            )
        }
        return value
    }

    // MARK: Events

    /// Returns no functions, as none can be set: functions do not run here.
    func events(_ request: CognitoRequest, _ caller: Caller) async throws -> HTTPServerResponse {
        _ = try await database.syncPools.find(try request.pool(), app: caller.appID)
        return .json(["Events": [:]])
    }

    func setEvents(_ request: CognitoRequest, _ caller: Caller) async throws -> HTTPServerResponse {
        _ = try await database.syncPools.find(try request.pool(), app: caller.appID)
        guard let events = request.body["Events"]?.object else {
            throw CognitoError.invalid("Events must be a map")
        }
        guard events.count <= 1 else { throw CognitoError.invalid("Events takes one entry") }
        for (name, value) in events {
            guard value.string?.isEmpty == true else {
                throw CognitoError.invalid(
                    "Events.\(name) cannot be set: no functions run here. The Kafka topic"
                        + " dataset.changes tells of every change"
                )
            }
        }
        return .json([:])
    }

    // MARK: Bulk publish

    func bulkPublish(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let pool = try request.pool()
        do {
            try await database.syncDevices.requirePushing(pool: pool, app: caller.appID)
        } catch SyncRefusal.pushSyncOff {
            // The clients of this operation have no class for a more exact error.
            throw CognitoError.invalid("The identity pool is not configured for push sync")
        }
        try await database.syncPools.startBulk(of: pool, app: caller.appID)
        return .json(["IdentityPoolId": .string(pool)])
    }

    func bulkPublishDetails(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let pool = try request.pool()
        let bulk = try await database.syncPools.bulk(of: pool, app: caller.appID)
        var answer: JSONObject = [
            "IdentityPoolId": .string(pool),
            "BulkPublishStatus": .string(bulk?.status.rawValue ?? "NOT_STARTED"),
        ]
        answer["BulkPublishStartTime"] = bulk?.startedAt.epochSeconds
        answer["BulkPublishCompleteTime"] = bulk?.completedAt?.epochSeconds
        answer["FailureMessage"] = bulk?.failure.map(JSONValue.string)
        return .json(.object(answer))
    }
}

/// The rules for the AWS names in a pool's configuration. The named resources are not looked up.
enum AWSName {
    /// Whether a name matches `arn:aws:sns:[-0-9a-z]+:\d+:app/[A-Z_]+/[a-zA-Z0-9_.-]+`.
    static func isApplication(_ name: String) -> Bool {
        let parts = name.split(separator: ":", omittingEmptySubsequences: false)
        guard name.utf8.count <= 2048, parts.count == 6, parts[..<3] == ["arn", "aws", "sns"]
        else { return false }
        let path = parts[5].split(separator: "/", omittingEmptySubsequences: false)
        return path.count == 3 && path[0] == "app"
            && isOf(parts[3]) { isLower($0) || isDigit($0) || $0 == UInt8(ascii: "-") }
            && isOf(parts[4], isDigit) && isOf(path[1]) { isUpper($0) || $0 == UInt8(ascii: "_") }
            && isOf(path[2]) {
                isLower($0) || isUpper($0) || isDigit($0) || "_.-".utf8.contains($0)
            }
    }

    /// Whether a name matches `arn:aws:iam::\d+:role/.*`, with 20 to 2048 characters.
    static func isRole(_ name: String) -> Bool {
        let parts = name.split(
            separator: ":",
            maxSplits: 5,
            omittingEmptySubsequences: false
        )
        return (20...2048).contains(name.unicodeScalars.count) && !name.utf8.contains(0)
            && parts.count == 6 && parts[..<4] == ["arn", "aws", "iam", ""]
            && isOf(parts[4], isDigit) && parts[5].hasPrefix("role/")
    }

    private static func isOf(_ text: Substring, _ isAllowed: (UInt8) -> Bool) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy(isAllowed)
    }

    private static func isLower(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
    }

    private static func isUpper(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte)
    }

    private static func isDigit(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
    }
}

extension SyncPoolUsage {
    fileprivate var json: JSONObject {
        [
            "IdentityPoolId": .string(name), "SyncSessionsCount": JSONValue(sessions),
            "DataStorage": JSONValue(bytes), "LastModifiedDate": modifiedAt.epochSeconds,
        ]
    }
}

extension SyncPool {
    fileprivate var json: JSONObject {
        var object: JSONObject = ["IdentityPoolId": .string(name)]
        object["PushSync"] = pushSync.map(JSONValue.object)
        object["CognitoStreams"] = streams.map(JSONValue.object)
        return object
    }
}
