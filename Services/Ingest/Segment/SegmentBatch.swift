import HTTPServer
import JSON

/// The items of one request of Segment's, as ranges of its body. Each is parsed on access and not cached.
struct SegmentBatch: Sendable {
    /// The limit of items. A body cannot contain as many valid items; invalid ones become dead
    /// letters.
    private static let maximumItems = 20_000

    private let body: [UInt8]
    private let places: [Range<Int>]
    /// `context`, `integrations` and `sentAt` of the batch, which apply to each of its items.
    private let shared: JSONObject
    /// The bytes that the shared fields add to all items together.
    let sharedBytes: Int
    private static let maximumSharedBytes = 1 << 20

    /// Shared fields that are objects: their members are added to the object of each item.
    private static let completed = ["context", "integrations"]
    private static let sharedNames = completed + ["sentAt"]

    var count: Int { places.count }

    /// Finds the items. `kind` is `nil` for a batch, or the kind of a single call, whose body is
    /// the item.
    ///
    /// - Throws: 400 if it is neither a batch nor a call, 413 if it has more items than a valid batch can
    ///   have.
    init(_ body: [UInt8], _ kind: SegmentItem.Kind?) throws {
        var batch: [Range<Int>]?
        var all = 0..<0
        var isObject = false
        var shared: JSONObject = [:]
        do throws(JSONError) {
            try JSONReader.visit(
                body,
                maximumDepth: ObjectLimits.levelsOfBody,
                maximumValues: ObjectLimits.valuesOfBody
            ) { reader throws(JSONError) in
                guard kind == nil else {
                    isObject = reader.kind == .object
                    all = try reader.slice()
                    return
                }
                isObject = try reader.object { key, reader throws(JSONError) in
                    let name =
                        key.isEqual(to: "context")
                        ? "context"
                        : key.isEqual(to: "integrations")
                            ? "integrations" : key.isEqual(to: "sentAt") ? "sentAt" : nil
                    if let name {
                        shared[name] = try ObjectText.value(body[try reader.slice()])
                        return
                    }
                    guard key.isEqual(to: "batch") else { return }
                    var found: [Range<Int>] = []
                    let isArray = try reader.array { element throws(JSONError) in
                        let place = try element.slice()
                        if found.count <= Self.maximumItems { found.append(place) }
                    }
                    batch = isArray ? found : nil
                }
            }
        } catch {
            (all, batch, shared) = try Self.cut(body, kind, after: error)
            isObject = true
        }
        guard isObject else {
            throw HTTPProblem(status: 400, detail: "the body must be an object")
        }
        self.body = body
        if kind != nil {
            places = [all]
            self.shared = [:]
            sharedBytes = 0
            return
        }
        guard let batch else {
            throw HTTPProblem(status: 400, detail: "batch must be an array")
        }
        guard batch.count <= Self.maximumItems else {
            throw HTTPProblem(
                status: 413,
                detail: "a batch has at most \(Self.maximumItems) items"
            )
        }
        places = batch
        for name in Self.sharedNames where shared[name]?.isNull == true { shared[name] = nil }
        self.shared = shared
        let size = shared.isEmpty ? 0 : JSONValue.object(shared).bytes.count
        sharedBytes = size * places.count
        guard size <= SegmentItem.maximumBytes, sharedBytes <= Self.maximumSharedBytes else {
            throw HTTPProblem(
                status: 413,
                detail: "context and integrations of the batch: at most"
                    + " \(SegmentItem.maximumBytes) bytes, and \(Self.maximumSharedBytes) bytes"
                    + " times the items"
            )
        }
    }

    /// Finds the items of a body that cannot be parsed because of one of them, so that only this
    /// item fails.
    private static func cut(
        _ body: [UInt8],
        _ kind: SegmentItem.Kind?,
        after error: JSONError
    ) throws(JSONError) -> (all: Range<Int>, batch: [Range<Int>]?, shared: JSONObject) {
        guard CutBody.isPossible(after: error),
            let members = JSONSlices.members(of: body, limit: ObjectLimits.valuesOfBody)
        else { throw error }
        if kind != nil { return (body.indices, nil, [:]) }
        let batch = members.last { $0.key == "batch" }.flatMap { member in
            JSONSlices.elements(of: body, in: member.value, limit: maximumItems + 1)
        }
        var shared: JSONObject = [:]
        for member in members where sharedNames.contains(member.key) {
            // If a shared field cannot be parsed, the whole batch fails, as the field applies to
            // all items.
            shared[member.key] = try ObjectText.value(body[member.value])
        }
        return (0..<0, batch, shared)
    }

    /// Returns one item, or why it cannot be parsed.
    func item(_ index: Int) -> Result<JSONValue, RefusedObject> {
        let text = body[places[index]]
        // An item that is too large is not parsed, as parsing takes the loop's time.
        if text.count > SegmentItem.maximumBytes,
            ObjectText.leastBytes(text) > SegmentItem.maximumBytes
        {
            return .failure(SegmentItem.tooLarge)
        }
        do throws(JSONError) {
            return .success(try ObjectText.value(text))
        } catch {
            return .failure(CutBody.refused(body, places[index], error))
        }
    }

    /// Returns the bytes of an item that cannot be parsed.
    ///
    /// - Returns: `nil` if they may contain the write key, which must not be readable.
    func unread(_ index: Int) -> [UInt8]? {
        let place = places[index]
        let members = JSONSlices.members(of: body, in: place, limit: ObjectLimits.valuesOfBody)
        var kept = Array(body[place])
        if let members, members.contains(where: { $0.key == "writeKey" }) {
            let others = members.filter { $0.key != "writeKey" }.map { member in
                JSONValue.string(member.key).bytes + [UInt8(ascii: ":")] + body[member.value]
            }
            kept =
                [UInt8(ascii: "{")] + others.joined(separator: [UInt8(ascii: ",")])
                + [UInt8(ascii: "}")]
        }
        return Self.mayNameKey(kept, isCut: members != nil) ? nil : kept
    }

    /// Whether bytes contain the name of the write key, or may contain it in escapes.
    private static func mayNameKey(_ text: [UInt8], isCut: Bool) -> Bool {
        let name = Array("writeKey".utf8)
        for start in text.indices {
            if text[start] == name[0], text[start...].starts(with: name) { return true }
            if !isCut, text[start] == UInt8(ascii: "\\") { return true }
        }
        return false
    }

    /// Completes an item by the shared fields of its batch; the item's own fields win.
    func completed(_ item: JSONObject) -> JSONObject {
        guard !shared.isEmpty else { return item }
        var item = item
        for (name, value) in shared {
            guard let own = item[name], !own.isNull else {
                item[name] = value
                continue
            }
            guard Self.completed.contains(name), var members = own.object,
                let others = value.object
            else { continue }
            for (key, member) in others where members[key] == nil { members[key] = member }
            item[name] = .object(members)
        }
        return item
    }
}
