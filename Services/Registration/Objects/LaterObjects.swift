import HTTPServer
import JSON
import PushStorage

/// The objects of an answer that is too large to be made at once. Which they are, and that they are not
/// too many, is known before the answer begins; each part of them is read when its caller has taken
/// the part before, so that of a slow one no more is held, and no connection to the database.
///
/// They are not of one moment: who is gone by then is left out, and who has changed is shown so. Hence
/// a part is weighed again when it is read, and an answer that has grown too large is cut off.
struct LaterObjects: Sendable {
    /// The first of some objects, as far as they may be held at once.
    struct Part: Sendable {
        let objects: [JSONObject]
        /// What they were weighed at.
        let bytes: Int
        /// The id of the last, where it is cut there.
        let last: String?
    }

    let places: ObjectPlaces
    /// Those of the ids that there are still, in their order: one at least, and as many as may be.
    let read: @Sendable (_ ids: [String]) async throws -> Part

    var count: Int { places.count }
    /// The id of the last.
    var last: String? { places.last }

    /// The answer: a JSON object with these as its `results`, and with other members.
    func response(beside others: JSONObject) -> HTTPServerResponse {
        var response = HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/json"]
        )
        response.stream = HTTPBodyStream { writer in
            var text = Array(#"{"results":["#.utf8)
            var isFirst = true
            try await forEachPart { objects in
                for object in objects {
                    if !isFirst { text.append(UInt8(ascii: ",")) }
                    isFirst = false
                    text += JSONValue.object(object).bytes
                }
                try await writer.write(text)
                text = []
            }
            text.append(UInt8(ascii: "]"))
            for (name, value) in others {
                text.append(UInt8(ascii: ","))
                text += JSONValue.string(name).bytes
                text.append(UInt8(ascii: ":"))
                text += value.bytes
            }
            text.append(UInt8(ascii: "}"))
            try await writer.write(text)
        }
        return response
    }

    /// - Throws: `PageTooLarge` where they have come to more than one answer may hold.
    private func forEachPart(_ body: ([JSONObject]) async throws -> Void) async throws {
        var bytes = 0
        for ids in places.parts {
            var left = ids[...]
            var atOnce = left.count
            while !left.isEmpty {
                let part = try await read(Array(left.prefix(atOnce)))
                bytes += part.bytes
                guard bytes <= PageBound.bytes else { throw PageTooLarge() }
                if let last = part.last,
                    let place = left.firstIndex(where: { $0.utf8.elementsEqual(last.utf8) })
                {
                    // The others have grown too, perhaps: not all of them are weighed again each time.
                    atOnce = place + 1 - left.startIndex
                    left = left[(place + 1)...]
                } else {
                    left = left.dropFirst(atOnce)
                    atOnce *= 2
                }
                try await body(part.objects)
            }
        }
    }
}
