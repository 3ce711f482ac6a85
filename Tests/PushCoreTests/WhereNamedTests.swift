import JSON
import PushCore
import Testing

@Suite("Conditions that name few devices by their form", .timeLimit(.minutes(1)))
struct WhereNamedTests {
    private static let pointer = #"{"__type":"Pointer","className":"_User","objectId":"u1"}"#

    private func named(_ text: String) throws -> NamedDevices? {
        try Where.parse(try JSONValue.parse(text)).namedDevices
    }

    @Test(
        "Equality with an id, a token or a user names a device, and so does a list of them",
        arguments: [
            (#"{"objectId": "a"}"#, NamedDevices.Field.objectID, ["a"]),
            (#"{"objectId": {"$eq": "a"}}"#, .objectID, ["a"]),
            (#"{"installationId": {"$in": ["a", "b"]}}"#, .installationID, ["a", "b"]),
            (#"[{"deviceToken": "t"}]"#, .deviceToken, ["t"]),
            (#"{"owner": \#(pointer)}"#, .owner, ["u1"]),
            (#"{"user": {"$in": [\#(pointer)]}}"#, .user, ["u1"]),
            (#"{"$and": [{"objectId": "a"}]}"#, .objectID, ["a"]),
        ]
    )
    func few(text: String, field: NamedDevices.Field, names: [String]) throws {
        let found = try #require(try named(text))
        #expect(found.field == field && found.names == names)
    }

    @Test(
        "Any other condition stays a condition",
        arguments: [
            #"{"objectId": {"$ne": "a"}}"#, #"{"objectId": {"$gt": "a"}}"#,
            #"{"objectId": "a", "valid": true}"#, #"{"objectId": {"$in": []}}"#,
            #"{"objectId": {"$in": ["a", null]}}"#, #"{"objectId": null}"#, #"{"owner": "u1"}"#,
            #"{"deviceType": "ios"}"#, #"{"user.objectId": "u1"}"#,
            #"{"$or": [{"objectId": "a"}]}"#, #"{"$nor": [{"objectId": "a"}]}"#,
            #"{"objectId": \#(pointer)}"#, "{}",
        ]
    )
    func others(text: String) throws {
        #expect(try named(text) == nil)
    }
}
