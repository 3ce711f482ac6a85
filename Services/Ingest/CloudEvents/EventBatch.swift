import HTTPServer
import JSON

/// The events of one request, as ranges of its body. Each is parsed on access and not cached.
struct EventBatch: Sendable {
    enum Mode: Sendable { case binary, structured, batched }

    private let mode: Mode
    private let body: [UInt8]
    /// The ranges of the events. The body of a binary event is its data.
    private let places: [Range<Int>]
    /// Whether the events were found without being parsed, because one of them is not valid.
    private var isCut = false
    /// The number of values that may still be parsed: in encoded data within events, and in events
    /// that were not parsed with the whole body.
    private var valuesLeft = ObjectLimits.valuesOfBody

    var count: Int { places.count }

    /// The limit of the bytes of an event's attributes, which are not part of its data.
    private static let envelopeBytes = 32 << 10

    /// - Throws: 415 if it is not an event, or in another format than JSON.
    static func mode(of request: HTTPServerRequest) throws -> Mode {
        let type = request.mediaType
        if type.hasPrefix("application/cloudevents-batch") {
            guard type == "application/cloudevents-batch+json" else { throw otherFormat }
            return .batched
        }
        if type.hasPrefix("application/cloudevents") {
            guard type == "application/cloudevents+json" || type == "application/cloudevents" else {
                throw otherFormat
            }
            return .structured
        }
        if request.header("ce-specversion") != nil || request.header("ce-id") != nil {
            return .binary
        }
        throw otherFormat
    }

    private static let otherFormat = HTTPProblem(
        status: 415,
        detail: "an event has headers ce-id, ce-source, ce-type and ce-specversion, or is"
            + " application/cloudevents+json, or several application/cloudevents-batch+json"
    )

    /// - Throws: 400 if the batch is invalid, 413 if it has more events than the route allows.
    init(_ body: [UInt8], _ mode: Mode) throws {
        self.body = body
        self.mode = mode
        var (found, isArray): ([Range<Int>], Bool) = ([0..<body.count], true)
        if mode != .binary {
            do throws(JSONError) {
                try JSONReader.visit(
                    body,
                    maximumDepth: ObjectLimits.levelsOfBody,
                    maximumValues: ObjectLimits.valuesOfBody
                ) { reader throws(JSONError) in
                    guard mode == .batched else {
                        found = [try reader.slice()]
                        return
                    }
                    found = []
                    isArray = try reader.array { element throws(JSONError) in
                        let place = try element.slice()
                        if found.count <= ObjectLimits.objects { found.append(place) }
                    }
                }
            } catch {
                found = try CutBody.places(body, limit: ObjectLimits.objects, after: error)
                isArray = mode == .structured || found != [body.indices]
                if mode == .structured, found != [body.indices] { throw error }
                isCut = true
            }
        }
        guard isArray else {
            throw HTTPProblem(status: 400, detail: "a batch must be an array of events")
        }
        guard found.count <= ObjectLimits.objects else {
            throw HTTPProblem(
                status: 413,
                detail: "a batch has at most \(ObjectLimits.objects) events"
            )
        }
        places = found
    }

    /// Returns one event; a binary one has its attributes in the headers of `request`.
    mutating func event(
        _ index: Int,
        of request: HTTPServerRequest
    ) throws(RefusedObject) -> IncomingEvent {
        let text = body[places[index]]
        let most = ObjectLimits.bytes + Self.envelopeBytes
        if text.count > most, ObjectText.leastBytes(text) > most {
            throw ObjectText.tooLarge(nil)
        }
        guard mode != .binary else {
            return try IncomingEvent(binary: request)
        }
        let value: JSONValue
        do throws(JSONError) {
            value = try ObjectText.value(text, maximumValues: isCut ? valuesLeft : .max)
        } catch {
            throw CutBody.refused(body, places[index], error)
        }
        if isCut { valuesLeft -= ObjectText.values(value) }
        return try IncomingEvent(structured: value, valuesLeft: &valuesLeft)
    }
}
