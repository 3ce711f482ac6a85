import HTTPServer
import JSON

/// The objects of one request of the native route, as they stand in its body.
struct NativeBatch: Sendable {
    /// A line that is not JSON is an object that is refused.
    private(set) var objects: [Result<JSONValue, RefusedObject>] = []
    let isExtended: Bool
    let sizeBytes: Int

    /// - Throws: 400 for a body that holds no object at all, 413 for more than the route takes.
    init(_ request: HTTPServerRequest) throws {
        let body = request.body
        let mediaType = request.mediaType
        isExtended = mediaType == "application/ejson"
        sizeBytes = body.count + body.count / 8
        if Self.lineTypes.contains(mediaType) {
            try readLines(body)
        } else {
            try readDocument(body)
        }
    }

    private static let lineTypes: Set<String> = [
        "application/x-ndjson", "application/ndjson", "application/x-jsonlines",
        "application/jsonl",
    ]

    private static func tooMany() -> HTTPProblem {
        HTTPProblem(
            status: 413,
            detail: "a request has at most \(ObjectLimits.objects) objects"
        )
    }

    private static func empty() -> HTTPProblem {
        HTTPProblem(
            status: 400,
            detail: "the body holds no object: it is one, an array of them, or one a line as"
                + " application/x-ndjson"
        )
    }

    private mutating func readDocument(_ body: [UInt8]) throws {
        let value = try JSONValue.parse(
            body,
            maximumDepth: ObjectLimits.levelsOfBody,
            maximumValues: ObjectLimits.valuesOfBody
        )
        switch value {
        case .object: objects = [.success(value)]
        case .array(let elements):
            guard elements.count <= ObjectLimits.objects else { throw Self.tooMany() }
            guard elements.contains(where: { $0.object != nil }) else { throw Self.empty() }
            objects = elements.map { .success($0) }
        case .null, .bool, .integer, .double, .number, .string: throw Self.empty()
        }
        // Sizes are looked at one by one only where one may be too large.
        guard body.count > ObjectLimits.bytes else { return }
        objects = objects.map { object in
            guard case .success(let value) = object, value.bytes.count > ObjectLimits.bytes else {
                return object
            }
            return .failure(Self.tooLarge(value))
        }
    }

    private static func tooLarge(_ value: JSONValue) -> RefusedObject {
        RefusedObject(
            id: value["_id"]?.string,
            pointer: "",
            reason: "an object has at most \(ObjectLimits.bytes) bytes"
        )
    }

    private mutating func readLines(_ body: [UInt8]) throws {
        // All lines are held at once, so their values count together, as an array's do.
        guard body.count(where: { $0 == UInt8(ascii: ",") }) <= ObjectLimits.valuesOfBody else {
            throw HTTPProblem(status: 413, detail: "the body has too many values")
        }
        for line in body.split(separator: UInt8(ascii: "\n")) {
            let line = line.last == UInt8(ascii: "\r") ? line.dropLast() : line
            if line.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }) { continue }
            guard objects.count < ObjectLimits.objects else { throw Self.tooMany() }
            objects.append(Self.read(Array(line)))
        }
        guard !objects.isEmpty else { throw Self.empty() }
    }

    private static func read(_ line: [UInt8]) -> Result<JSONValue, RefusedObject> {
        guard line.count <= ObjectLimits.bytes else {
            return .failure(
                RefusedObject(
                    pointer: "",
                    reason: "an object has at most \(ObjectLimits.bytes) bytes"
                )
            )
        }
        do throws(JSONError) {
            return .success(
                try JSONValue.parse(
                    line,
                    maximumDepth: ObjectLimits.levelsOfBody,
                    maximumValues: ObjectLimits.valuesOfBody
                )
            )
        } catch {
            return .failure(
                RefusedObject(pointer: "", reason: "is not JSON: \(error.expected.rawValue)")
            )
        }
    }
}
