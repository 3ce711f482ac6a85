import HTTPServer
import JSON

/// The objects of one request of the native route, as ranges of its body. Each is parsed on access and not
/// cached.
struct NativeBatch: Sendable {
    private let body: [UInt8]
    /// Whether the objects were found without being parsed: one a line, or because one of them is not valid.
    private var isCut: Bool
    /// The ranges of the objects.
    private var places: [Range<Int>] = []
    /// The values left for all objects together, if the body was not parsed as a whole.
    private var valuesLeft = ObjectLimits.valuesOfBody
    let isExtended: Bool

    var count: Int { places.count }
    var sizeBytes: Int { body.count + body.count / 8 }

    /// - Throws: 400 if the body has no object at all, 413 if it has more than the route allows.
    init(_ body: [UInt8], mediaType: String) throws {
        self.body = body
        isExtended = mediaType == "application/ejson"
        isCut = Self.lineTypes.contains(mediaType)
        if isCut {
            try findLines()
        } else {
            do {
                try findElements()
            } catch let error as JSONError {
                try cut(after: error)
            }
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
            detail: "the body has no object; send one, an array, or one a line as"
                + " application/x-ndjson"
        )
    }

    private mutating func findElements() throws {
        var (found, count): ([Range<Int>], Int) = ([], 0)
        try JSONReader.visit(
            body,
            maximumDepth: ObjectLimits.levelsOfBody,
            maximumValues: ObjectLimits.valuesOfBody
        ) { reader throws(JSONError) in
            guard reader.kind == .array else {
                let isObject = reader.kind == .object
                let place = try reader.slice()
                if isObject { found.append(place) }
                return
            }
            try reader.array { element throws(JSONError) in
                let place = try element.slice()
                count += 1
                if count <= ObjectLimits.objects { found.append(place) }
            }
        }
        guard count <= ObjectLimits.objects else { throw Self.tooMany() }
        guard found.contains(where: { body[$0.lowerBound] == UInt8(ascii: "{") }) else {
            throw Self.empty()
        }
        places = found
    }

    private mutating func cut(after error: JSONError) throws {
        let found = try CutBody.places(body, limit: ObjectLimits.objects, after: error)
        guard found.contains(where: { body[$0.lowerBound] == UInt8(ascii: "{") }) else {
            throw error
        }
        isCut = true
        places = found
    }

    private mutating func findLines() throws {
        for line in body.split(separator: UInt8(ascii: "\n")) {
            let line = line.last == UInt8(ascii: "\r") ? line.dropLast() : line
            if line.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }) { continue }
            guard places.count < ObjectLimits.objects else { throw Self.tooMany() }
            places.append(line.startIndex..<line.endIndex)
        }
        guard !places.isEmpty else { throw Self.empty() }
    }

    /// Returns one object, or a refusal if it is not JSON.
    ///
    /// - Throws: 413 once the objects up to this one have too many values.
    mutating func object(_ index: Int) throws -> Result<JSONValue, RefusedObject> {
        isCut ? try cutObject(places[index]) : element(places[index])
    }

    private func element(_ place: Range<Int>) -> Result<JSONValue, RefusedObject> {
        let text = body[place]
        if text.count > ObjectLimits.bytes, ObjectText.leastBytes(text) > ObjectLimits.bytes {
            return .failure(ObjectText.tooLarge(ObjectText.id(text)))
        }
        do throws(JSONError) {
            let value = try ObjectText.value(text)
            // An object may get longer when it is serialized again. It is measured only if it could
            // exceed the limit.
            if body.count > ObjectLimits.bytes, text.count > ObjectLimits.bytes / 8,
                value.bytes.count > ObjectLimits.bytes
            {
                return .failure(ObjectText.tooLarge(ObjectText.id(text)))
            }
            return .success(value)
        } catch {
            return .failure(CutBody.refused(body, place, error))
        }
    }

    private mutating func cutObject(
        _ place: Range<Int>
    ) throws -> Result<JSONValue, RefusedObject> {
        let text = body[place]
        guard text.count <= ObjectLimits.bytes else { return .failure(ObjectText.tooLarge(nil)) }
        do throws(JSONError) {
            let value = try JSONValue.parse(
                Array(text),
                maximumDepth: ObjectLimits.levelsOfBody,
                maximumValues: valuesLeft
            )
            valuesLeft -= ObjectText.values(value)
            return .success(value)
        } catch {
            guard error.expected != .fewerValues else {
                throw HTTPProblem(status: 413, detail: "the body has too many values")
            }
            return .failure(CutBody.refused(body, place, error))
        }
    }
}
