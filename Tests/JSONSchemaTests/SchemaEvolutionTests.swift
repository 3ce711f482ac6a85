import JSON
import JSONSchema
import Testing

@Suite struct SchemaEvolutionTests {
    /// Changes of a property `x`, before and after.
    @Test(arguments: [
        (#"{"type":"number"}"#, #"{"type":"integer"}"#, "/type"),
        (#"{"type":"string"}"#, #"{"type":"integer"}"#, "/type"),
        (#"{"type":"string"}"#, #"{"type":["string","integer"]}"#, "/type"),
        (#"{"type":["string","null"]}"#, #"{"type":"string"}"#, "/type"),
        ("{}", #"{"type":"string"}"#, "/type"), (#"{"type":"string"}"#, "{}", ""),
        (#"{"bsonType":"long"}"#, #"{"bsonType":"int"}"#, "/bsonType"),
        (#"{"type":"integer","maximum":9}"#, #"{"type":"integer","maximum":8}"#, "/maximum"),
        (#"{"type":"integer"}"#, #"{"type":"integer","minimum":0}"#, "/minimum"),
        (#"{"minimum":0}"#, #"{"exclusiveMinimum":0}"#, "/exclusiveMinimum"),
        (#"{"maximum":0}"#, #"{"exclusiveMaximum":0}"#, "/exclusiveMaximum"),
        (#"{"multipleOf":2}"#, #"{"multipleOf":4}"#, "/multipleOf"),
        ("{}", #"{"minLength":1}"#, "/minLength"),
        (#"{"maxLength":3}"#, #"{"maxLength":2}"#, "/maxLength"),
        (#"{"pattern":"a"}"#, #"{"pattern":"b"}"#, "/pattern"),
        (#"{"type":"string"}"#, #"{"type":"string","format":"uuid"}"#, "/format"),
        (#"{"enum":[1,2]}"#, #"{"enum":[1]}"#, "/enum"),
        (#"{"type":"integer"}"#, #"{"type":"integer","enum":[1]}"#, "/enum"),
        (#"{"enum":[1,2]}"#, #"{"const":1}"#, "/const"),
        ("{}", #"{"minItems":1}"#, "/minItems"), ("{}", #"{"maxItems":1}"#, "/maxItems"),
        ("{}", #"{"uniqueItems":true}"#, "/uniqueItems"),
        (#"{"items":{"type":"number"}}"#, #"{"items":{"type":"integer"}}"#, "/items/type"),
        (#"{"prefixItems":[true]}"#, #"{"prefixItems":[{"minimum":1}]}"#, "/prefixItems/0/minimum"),
        ("{}", #"{"items":false}"#, "/items"),
        ("{}", #"{"minProperties":1}"#, "/minProperties"),
        ("{}", #"{"maxProperties":1}"#, "/maxProperties"),
        ("{}", #"{"required":["a"]}"#, "/required"),
        ("{}", #"{"additionalProperties":false}"#, "/additionalProperties"),
        (
            #"{"required":["a"]}"#, #"{"required":["a"],"properties":{"a":{"minimum":1}}}"#,
            "/properties/a/minimum"
        ),
        (
            #"{"properties":{"a":{}},"additionalProperties":false}"#,
            #"{"additionalProperties":false}"#, "/properties/a"
        ),
        (
            #"{"properties":{"a/b":{"maximum":2}}}"#, #"{"properties":{"a/b":{"maximum":1}}}"#,
            "/properties/a~1b/maximum"
        ),
        ("{}", #"{"allOf":[{"minimum":1}]}"#, "/allOf/0"),
        (#"{"anyOf":[{"minimum":1},{"maximum":0}]}"#, #"{"anyOf":[{"minimum":1}]}"#, "/anyOf"),
        (#"{"oneOf":[{"minimum":1}]}"#, #"{"oneOf":[{"minimum":1},{"maximum":0}]}"#, "/oneOf"),
        (#"{"not":{"minimum":1}}"#, #"{"not":{"minimum":0}}"#, "/not"), ("{}", "false", ""),
    ])
    func narrowingIsNamed(before: String, after: String, pointer: String) throws {
        let narrowing = try schema(x: before).narrowing(in: try schema(x: after))
        #expect(narrowing?.pointer == "/properties/x\(pointer)")
    }

    @Test(arguments: [
        (#"{"type":"integer"}"#, #"{"type":"number"}"#),
        (#"{"type":"string"}"#, #"{"type":["null","string"]}"#),
        (#"{"bsonType":"int"}"#, #"{"bsonType":"long"}"#),
        (#"{"bsonType":"long"}"#, #"{"bsonType":"double"}"#),
        (#"{"maximum":8}"#, #"{"maximum":9}"#), (#"{"minimum":1}"#, #"{"exclusiveMinimum":0}"#),
        (#"{"exclusiveMaximum":1}"#, #"{"maximum":1.0}"#), (#"{"minimum":1}"#, "{}"),
        (#"{"multipleOf":0.02}"#, #"{"multipleOf":0.01}"#),
        (#"{"minLength":2,"maxLength":3}"#, #"{"minLength":1,"maxLength":4}"#),
        (#"{"type":"string","pattern":"a","format":"uuid"}"#, #"{"type":"string"}"#),
        (#"{"enum":["a"]}"#, #"{"enum":["b","a"]}"#), (#"{"const":1}"#, #"{"enum":[2,1.0]}"#),
        (#"{"type":"integer","enum":[1]}"#, #"{"type":"integer"}"#),
        (#"{"uniqueItems":true,"minItems":1}"#, "{}"),
        (#"{"items":{"type":"integer"}}"#, #"{"items":{"type":"number"}}"#),
        (#"{"required":["a","b"]}"#, #"{"required":["b"]}"#),
        (#"{"additionalProperties":false}"#, #"{"additionalProperties":true}"#),
        (
            #"{"additionalProperties":false}"#,
            #"{"properties":{"a":{"type":"null"}},"additionalProperties":false}"#
        ),
        (#"{"properties":{"a":{}}}"#, #"{"properties":{"a":{},"b":{"type":"string"}}}"#),
        (#"{"anyOf":[{"minimum":1}]}"#, #"{"anyOf":[{"maximum":0},{"minimum":0}]}"#),
        (#"{"allOf":[{"minimum":1},{"maximum":3}]}"#, #"{"allOf":[{"maximum":4}]}"#),
        (
            #"{"oneOf":[{"minimum":1}],"not":{"type":"null"}}"#,
            #"{"oneOf":[{"minimum":1}],"not":{"type":"null"}}"#
        ),
        (#"{"maximum":3,"title":"a"}"#, #"{"maximum":3,"description":"b"}"#), ("false", "{}"),
    ])
    func wideningIsTaken(before: String, after: String) throws {
        #expect(try schema(x: before).narrowing(in: try schema(x: after)) == nil)
    }

    @Test func columnsKeepTheirKind() throws {
        let time = try schema(x: #"{"type":"string","format":"date-time"}"#)
        let text = try schema(x: #"{"type":"string"}"#)
        #expect(time.narrowing(in: text)?.pointer == "/properties/x")
        let any = try schema(x: "true")
        #expect(text.narrowing(in: any)?.pointer == "/properties/x")
    }

    @Test func newPropertyMustNotBeRequired() throws {
        let before = try schema(x: "{}")
        let after = try schema(
            #"{"type":"object","properties":{"_id":{"type":"string"},"x":{},"y":{"type":"string"}},"required":["_id","y"]}"#
        )
        #expect(
            before.narrowing(in: after) == SchemaError(pointer: "/required", "y was not required")
        )
    }

    @Test func recursiveSchemasAreCompared() throws {
        func list(_ bound: Int) throws -> ObjectSchema {
            try schema(
                x: ##"{"$ref":"#/$defs/list"}"##,
                ##","$defs":{"list":{"properties":{"v":{"maximum":\##(bound)},"next":{"$ref":"#/$defs/list"}}}}"##
            )
        }
        #expect(try list(3).narrowing(in: try list(4)) == nil)
        #expect(
            try list(3).narrowing(in: try list(2))?.pointer == "/$defs/list/properties/v/maximum"
        )
    }
}
