import Cryptography
import Gateway
import HTTPServer
import JSON
import PushCore

/// `/scan/classes/<Class>`, which walks through all of a class, and `/cloudQuery`, which queries in CQL.
extension LeanCloudSurface {
    var queryRoutes: [LeanCloudRoute] {
        [
            LeanCloudRoute(.get, "scan/classes/:class") { try await scan($0) },
            LeanCloudRoute(.get, "cloudQuery") { try await cloudQuery($0) },
            LeanCloudRoute(.get, "date") { _ in Self.date() },
        ]
    }

    /// Returns a page of all objects, and the cursor of the next page. After the last page the
    /// cursor is `null`, as the JavaScript SDK starts again if there is no cursor. A page of large
    /// objects has fewer objects than the limit.
    private func scan(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        let name = call.path("class")
        guard let objectClass = ObjectOperations.ObjectClass(className: name) else {
            throw LeanCloudError.classNotFound(name)
        }
        let key = try call.text("scan_key") ?? "objectId"
        let order = try SortKey.parse(key)
        guard order.count == 1, let first = order.first else {
            throw LeanCloudError(code: 105, "scan_key is one field's name.")
        }
        var query = ObjectQuery()
        query.condition = try call.condition() ?? .everything
        query.selection = try call.selection()
        query.limit = LeanCloudCall.limit(try call.integer("limit"))
        let now = Instant.now()
        var start = ScanCursor.Place.beginning
        if let text = try call.text("cursor") {
            start = try ScanCursor(text, of: name, by: key, now: now).place
        }
        let id = try WherePath("objectId")
        let isByID = first.path == id && !first.isDescending
        switch start {
        case .beginning: break
        case .behind(let last):
            let rest = Where.field(id, .compare(.greater, .string(last)))
            query.condition = .all([query.condition, rest])
        case .skipping(let count): query.skip = count
        }
        query.order = isByID ? [first] : [first, SortKey(path: id, isDescending: false)]
        let found = try await objects.page(
            objectClass,
            query,
            caller: call.caller,
            mayBeLater: !call.isInBatch
        )
        let count = found.later?.count ?? found.results.count
        let last = found.later?.last ?? found.results.last?["objectId"]?.string
        var next: ScanCursor?
        if found.isCut || count == query.limit, let last {
            next = ScanCursor(
                className: name,
                key: key,
                place: isByID ? .behind(last) : .skipping(query.skip + count),
                end: now.adding(milliseconds: ScanCursor.lifetimeInMilliseconds)
            )
        }
        return LeanCloudAnswer(found, beside: ["cursor": next.map { .string($0.text) } ?? .null])
    }

    private func cloudQuery(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        guard let text = try call.text("cql") else {
            throw LeanCloudError(code: 300, "CQL: cql is missing.")
        }
        var values: [JSONValue] = []
        if var given = try call.json("pvalues") {
            // The Python client encodes the JSON twice.
            if let text = given.string {
                given = try LeanCloudCall.parse(
                    Array(text.utf8),
                    forMaster: call.caller.isMaster
                )
            }
            guard let list = given.array else {
                throw LeanCloudError(code: 107, "pvalues must be an array.")
            }
            values = list
        }
        let cql = try CQLQuery.parse(text, values: values)
        guard let objectClass = ObjectOperations.ObjectClass(className: cql.className) else {
            throw LeanCloudError.classNotFound(cql.className)
        }
        var query = ObjectQuery()
        query.condition = cql.condition
        query.order = cql.order
        query.limit = cql.isCount ? 0 : LeanCloudCall.limit(cql.limit)
        query.skip = cql.skip
        query.wantsCount = cql.isCount
        query.selection = try KeySelection(cql.keys.joined(separator: ","))
        let found = try await objects.find(
            objectClass,
            query,
            caller: call.caller,
            mayBeLater: !call.isInBatch
        )
        var others: JSONObject = ["className": .string(cql.className)]
        if let count = found.count { others["count"] = JSONValue(count) }
        return LeanCloudAnswer(found, beside: others)
    }
}

/// The position at which a scan continues, as a string that only the server parses. It is not
/// secret, as a caller that may scan may see all results.
struct ScanCursor: Equatable {
    enum Place: Equatable {
        case beginning
        /// After this object id.
        case behind(String)
        /// The number of objects to skip in the order of another key. Objects may move between
        /// pages.
        case skipping(Int)
    }

    static let lifetimeInMilliseconds: Int64 = 600_000

    let className: String
    let key: String
    let place: Place
    let end: Instant

    init(className: String, key: String, place: Place, end: Instant) {
        self.className = className
        self.key = key
        self.place = place
        self.end = end
    }

    var text: String {
        var object: JSONObject = [
            "class": .string(className), "key": .string(key), "end": .integer(end.milliseconds),
        ]
        switch place {
        case .beginning: break
        case .behind(let id): object["id"] = .string(id)
        case .skipping(let count): object["skip"] = JSONValue(count)
        }
        return Base64.encodeURL(JSONValue.object(object).bytes)
    }

    /// - Throws: `LeanCloudError` if it is not a cursor, belongs to another scan, or has expired.
    init(_ text: String, of className: String, by key: String, now: Instant) throws(LeanCloudError)
    {
        guard text.utf8.count <= 2048, let bytes = try? Base64.decodeURL(text),
            let value = try? JSONValue.parse(bytes), value["class"]?.string == className,
            value["key"]?.string == key, let end = value["end"]?.integer
        else { throw LeanCloudError(code: 107, "The cursor is not one of this scan.") }
        guard Int64(end) > now.milliseconds else {
            throw LeanCloudError(code: 107, "The cursor has expired: it is valid for ten minutes.")
        }
        self.className = className
        self.key = key
        self.end = Instant(milliseconds: Int64(end))
        if let id = value["id"]?.string, !id.utf8.contains(0) {
            place = .behind(id)
        } else if let count = value["skip"]?.integer, count >= 0 {
            place = .skipping(count)
        } else {
            place = .beginning
        }
    }
}
