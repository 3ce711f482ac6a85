import HTTPServer
import JSON

/// The response to a request, with the result of each object.
struct NativeAnswer: Sendable {
    private var accepted = IDList()
    private var duplicates = IDList()
    private var refused = RefusedList()
    private var known = ExactStringSet()

    /// Ids as a JSON array. They are hexadecimal digits, which need no escapes.
    private struct IDList {
        var text: [UInt8] = [UInt8(ascii: "[")]

        mutating func add(_ id: String) {
            if text.count > 1 { text.append(UInt8(ascii: ",")) }
            text.append(UInt8(ascii: "\""))
            text.append(contentsOf: id.utf8)
            text.append(UInt8(ascii: "\""))
        }
    }

    /// - Returns: Whether the object is the first with its id in this request.
    mutating func accept(_ id: String) -> Bool {
        guard known.insert(id).inserted else {
            duplicates.add(id)
            return false
        }
        accepted.add(id)
        return true
    }

    mutating func refuse(_ object: RefusedObject, at index: Int) {
        refused.add(object, at: index)
    }

    /// The approximate size of the response.
    var byteCount: Int {
        accepted.text.count + duplicates.text.count + refused.byteCount
    }

    /// Returns the lists as members of a JSON object.
    ///
    /// - Parameter head: The text before them: the brace, and perhaps members.
    /// - Returns: The whole object.
    func body(after head: String) -> [UInt8] {
        var body = Array(head.utf8)
        body.reserveCapacity(head.utf8.count + byteCount + 64)
        body += Array(#""accepted":"#.utf8)
        body += accepted.text
        body += Array(#"],"duplicates":"#.utf8)
        body += duplicates.text
        body += Array(#"],"refused":"#.utf8)
        refused.write(into: &body)
        body.append(UInt8(ascii: "}"))
        return body
    }

    var response: HTTPServerResponse {
        HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/json"],
            body: body(after: "{")
        )
    }
}
