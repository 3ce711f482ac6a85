import JSON
import PushCore

/// LeanCloud's export of `_Installation`: one object a line, an array, or `{"results": […]}`, with the
/// fields as clients see them.
enum LeanCloudRecord {
    /// The fields with a column of their own here.
    private static let own = ["objectId", "createdAt", "updatedAt", "__type", "className"]

    static func fields(_ bytes: [UInt8]) throws(Rejection) -> RecordFields {
        let record = try RecordValue.object(bytes)
        guard let id = record["objectId"]?.string else { throw Rejection("objectId is missing") }
        var body = JSONObject()
        for (name, value) in record where !value.isNull && !own.contains(name) {
            body[name] = value
        }
        // LeanCloud sets it, and sets it again when the device comes back, as Carillon does.
        let isInvalid = body["valid"]?.bool == false
        if isInvalid { body["valid"] = true }
        return RecordFields(
            body: body,
            rule: .leanCloud,
            objectID: id,
            createdAt: try RecordValue.time(record["createdAt"], "createdAt"),
            updatedAt: try RecordValue.time(record["updatedAt"], "updatedAt"),
            invalidReason: isInvalid ? Installation.inactiveReason : nil
        )
    }
}
