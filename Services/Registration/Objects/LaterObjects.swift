import HTTPServer
import JSON
import PushStorage

/// The objects of an answer that is too large to be made at once. Which they are, and that they are not
/// too many, is known before the answer begins; each part of them is read when its caller has taken
/// the part before, so that of a slow one no more is held, and no connection to the database.
///
/// They are not of one moment: who is gone by then is left out, and who has changed is shown so.
struct LaterObjects: Sendable {
    let places: ObjectPlaces
    /// Those of the ids that there are still, in their order.
    let read: @Sendable (_ ids: [String]) async throws -> [JSONObject]

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
            for ids in places.parts {
                for object in try await read(ids) {
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
}
