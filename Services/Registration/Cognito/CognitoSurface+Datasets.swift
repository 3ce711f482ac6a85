import Gateway
import HTTPServer
import JSON
import PushCore
import PushEvents
import SyncStorage

/// Datasets and their records.
extension CognitoSurface {
    private static let maximumKeyLength = 1024
    private static let maximumValueLength = 1_048_575

    func listRecords(_ request: CognitoRequest, _ caller: Caller) async throws -> HTTPServerResponse
    {
        let dataset = try request.dataset(caller)
        let count = try request.number("lastSyncCount") ?? 0
        let limit = try request.limit(SyncLimits.records)
        let cursor = try request.nextToken.map { token throws(CognitoError) in
            try tokens.cursor(token, of: dataset)
        }
        let page = try await database.syncDatasets.records(
            of: dataset,
            above: count,
            after: cursor,
            limit: limit
        )
        sessions.add(dataset.owner.pool)
        var answer: JSONObject = [
            "Records": .array(page.records.map { .object($0.json) }),
            "Count": JSONValue(page.records.count), "DatasetSyncCount": JSONValue(page.syncCount),
            "DatasetExists": .bool(page.exists),
            "DatasetDeletedAfterRequestedSyncCount": .bool(count > 0 && count <= page.deletedCount),
            "MergedDatasetNames": [],
            "SyncSessionToken": .string(tokens.session(of: dataset, at: .now())),
        ]
        answer["LastModifiedBy"] = page.modifiedBy.map(JSONValue.string)
        if page.hasMore, let last = page.records.last {
            let end = SyncCursor(syncCount: last.syncCount, key: last.key)
            answer["NextToken"] = .string(tokens.page(end, of: dataset))
        }
        return .json(.object(answer))
    }

    func updateRecords(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let dataset = try request.dataset(caller)
        try tokens.checkSession(
            try request.text("SyncSessionToken"),
            of: dataset,
            at: .now()
        )
        let device = try request.text("DeviceId").map { id throws(CognitoError) in
            try CognitoRequest.deviceID(id)
        }
        let patches = try Self.patches(of: request)
        guard !patches.isEmpty else { return .json(["Records": []]) }
        let (owner, topics) = (dataset.owner, topics)
        let store = database.syncDatasets
        let records = try await store.update(dataset, patches, by: device) { count in
            let change = DatasetChange(
                pool: owner.pool,
                identity: owner.identity,
                dataset: dataset.name,
                syncCount: count,
                device: device
            )
            return DatasetChangedRecord.record(change, of: owner.app, topics)
        }
        return .json(["Records": .array(records.map { .object($0.json) })])
    }

    private static func patches(of request: CognitoRequest) throws(CognitoError) -> [SyncPatch] {
        guard let value = request.body["RecordPatches"] else { return [] }
        guard let list = value.array else { throw .invalid("RecordPatches must be a list") }
        guard list.count <= SyncLimits.records else {
            throw .invalid("RecordPatches takes at most \(SyncLimits.records)")
        }
        var keys: ExactStringSet = []
        var patches: [SyncPatch] = []
        for (index, value) in list.enumerated() {
            let patch = try patch(value, "RecordPatches[\(index)]")
            guard keys.insert(patch.key).inserted else {
                throw .invalid("RecordPatches[\(index)].Key is there twice")
            }
            patches.append(patch)
        }
        return patches
    }

    private static func patch(_ value: JSONValue, _ at: String) throws(CognitoError) -> SyncPatch {
        guard let object = value.object else { throw .invalid("\(at) must be an object") }
        func member(_ name: String) -> JSONValue? {
            object[name].flatMap { $0.isNull ? nil : $0 }
        }
        guard let op = member("Op")?.string, op == "replace" || op == "remove" else {
            let given = member("Op")?.shown ?? "missing"
            throw .invalid("\(at).Op must be replace or remove, not \(given)")
        }
        guard let key = member("Key")?.string, !key.utf8.contains(0),
            (1...maximumKeyLength).contains(key.unicodeScalars.count)
        else { throw .invalid("\(at).Key must be 1 to \(maximumKeyLength) characters") }
        guard let count = member("SyncCount")?.integer, count >= 0 else {
            let given = member("SyncCount")?.shown ?? "missing"
            throw .invalid(
                "\(at).SyncCount must be a whole number that is not negative, not \(given)"
            )
        }
        var text: String?
        if let value = member("Value") {
            guard let given = value.string, !given.utf8.contains(0),
                given.unicodeScalars.count <= maximumValueLength
            else {
                throw .invalid("\(at).Value must be at most \(maximumValueLength) characters")
            }
            text = given
        }
        if op == "replace", text == nil { throw .invalid("\(at).Value is missing") }
        var modified: Instant?
        if let value = member("DeviceLastModifiedDate") {
            guard let seconds = value.double, abs(seconds) < 1e12 else {
                throw .invalid(
                    "\(at).DeviceLastModifiedDate must be seconds since 1970, not \(value.shown)"
                )
            }
            modified = Instant(milliseconds: Int64((seconds * 1000).rounded()))
        }
        return SyncPatch(
            key: key,
            value: op == "remove" ? nil : text,
            syncCount: count,
            deviceModifiedAt: modified
        )
    }

    func listDatasets(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let owner = try request.owner(caller)
        let list = [owner.app, owner.pool, owner.identity]
        let (datasets, hasMore) = try await database.syncDatasets.datasets(
            of: owner,
            after: try request.nextToken.map { token throws(CognitoError) in
                try tokens.name(token, of: list)
            },
            limit: try request.limit(SyncLimits.datasetsPage)
        )
        var answer: JSONObject = [
            "Datasets": .array(datasets.map { .object($0.json) }),
            "Count": JSONValue(datasets.count),
        ]
        if hasMore, let last = datasets.last {
            answer["NextToken"] = .string(tokens.page(after: last.name, of: list))
        }
        return .json(.object(answer))
    }

    func describeDataset(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let dataset = try await database.syncDatasets.find(try request.dataset(caller))
        return .json(["Dataset": .object(dataset.json)])
    }

    func deleteDataset(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let dataset = try await database.syncDatasets.delete(try request.dataset(caller))
        return .json(["Dataset": .object(dataset.json)])
    }

    func identityUsage(
        _ request: CognitoRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let owner = try request.owner(caller)
        let usage = try await database.syncDatasets.usage(of: owner)
        var object: JSONObject = [
            "IdentityId": .string(owner.identity), "IdentityPoolId": .string(owner.pool),
            "DatasetCount": JSONValue(usage.datasets), "DataStorage": JSONValue(usage.bytes),
        ]
        object["LastModifiedDate"] = usage.modifiedAt.map(\.epochSeconds)
        return .json(["IdentityUsage": .object(object)])
    }
}

extension Instant {
    /// The form in which Cognito's clients read times: a number of seconds, with milliseconds.
    var epochSeconds: JSONValue { .double(Double(milliseconds) / 1000) }
}

extension SyncRecord {
    var json: JSONObject {
        var object: JSONObject = [
            "Key": .string(key), "SyncCount": JSONValue(syncCount),
            "LastModifiedDate": modifiedAt.epochSeconds,
        ]
        object["Value"] = value.map(JSONValue.string)
        object["LastModifiedBy"] = modifiedBy.map(JSONValue.string)
        object["DeviceLastModifiedDate"] = deviceModifiedAt.map(\.epochSeconds)
        return object
    }
}

extension SyncDataset {
    var json: JSONObject {
        var object: JSONObject = [
            "IdentityId": .string(identity), "DatasetName": .string(name),
            "CreationDate": createdAt.epochSeconds, "LastModifiedDate": modifiedAt.epochSeconds,
            "DataStorage": JSONValue(bytes), "NumRecords": JSONValue(records),
        ]
        object["LastModifiedBy"] = modifiedBy.map(JSONValue.string)
        return object
    }
}
