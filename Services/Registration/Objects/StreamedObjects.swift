import HTTPServer
import InstallationStorage
import JSON

/// The objects of a response that is too large to be built at once. Their ids and their total size
/// are checked before the response begins. Each part is read after the client has received the part
/// before it. So a slow client holds no more than a part, and no connection to the database.
///
/// The objects are not a snapshot: deleted ones are left out, and changed ones have their new
/// content. So each part is weighed again when it is read, and a response that has grown too large
/// is cut off.
struct StreamedObjects: Sendable {
    /// The first of the requested objects, as many as may be in memory at once.
    struct Part: Sendable {
        let objects: [JSONObject]
        /// The size of the objects, as they were read.
        let bytes: Int
        /// The id of the last object, if the part is cut after it.
        let last: String?
    }

    let places: ObjectLocations
    /// Reads those of the objects that still exist, in order: at least one, and as many as may be
    /// in memory at once.
    let read: @Sendable (_ ids: [String]) async throws -> Part

    var count: Int { places.count }
    /// The id of the last object.
    var last: String? { places.last }

    /// Returns a response with one JSON object: `results` with these objects, and the other
    /// members.
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

    /// - Throws: `PageTooLarge` if they have grown beyond the limit of one response.
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
                    // The objects that are left may have grown, too. Reading fewer at once avoids
                    // weighing all of them each time.
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
