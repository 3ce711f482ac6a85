import HTTPServer
import JSON

/// The items of one request of Segment's, as they stand in its body. Each becomes a value when it is asked
/// for, and only for as long.
struct SegmentBatch: Sendable {
    /// More than a body can hold of items that are any good: what is none is a record of the dead letters.
    private static let maximumItems = 20_000

    private let body: [UInt8]
    private let places: [Range<Int>]

    var count: Int { places.count }

    /// `kind` is that of a call of its own, which is the whole body.
    ///
    /// - Throws: 400 for what is none of the two, 413 for more items than any good batch has.
    init(_ body: [UInt8], _ kind: SegmentItem.Kind?) throws {
        var batch: [Range<Int>]?
        var all = 0..<0
        var isObject = false
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
                guard key.isEqual(to: "batch") else { return }
                var found: [Range<Int>] = []
                let isArray = try reader.array { element throws(JSONError) in
                    let place = try element.slice()
                    if found.count <= Self.maximumItems { found.append(place) }
                }
                batch = isArray ? found : nil
            }
        }
        guard isObject else {
            throw HTTPProblem(status: 400, detail: "the body must be an object")
        }
        self.body = body
        if kind != nil {
            places = [all]
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
    }

    func item(_ index: Int) throws -> JSONValue { try ObjectText.value(body[places[index]]) }
}
