import JSON
import JSONSchema
import Testing

/// Parses a schema of a type called `WeatherSensor`.
func schema(_ text: String) throws(SchemaError) -> ObjectSchema {
    try ObjectSchema(Array(text.utf8), type: "WeatherSensor")
}

/// Makes a type with one property `x` beside its `_id`.
func schema(x: String, _ others: String = "") throws(SchemaError) -> ObjectSchema {
    try schema(
        #"{"type":"object","properties":{"_id":{"type":"string"},"x":\#(x)},"required":["_id"]\#(others)}"#
    )
}

@Suite struct ObjectSchemaTests {
    static let weather = #"""
        {
          "title": "WeatherSensor",
          "bsonType": "object",
          "required": ["_id", "deviceId", "temperatureInFahrenheit",
                       "barometricPressureInHg", "windSpeedInMph"],
          "properties": {
            "_id": {"bsonType": "objectId"},
            "deviceId": {"bsonType": "string"},
            "temperatureInFahrenheit": {"bsonType": "float"},
            "barometricPressureInHg": {"bsonType": "float"},
            "windSpeedInMph": {"bsonType": "int"}
          }
        }
        """#

    private func fault(_ schema: ObjectSchema, _ object: String) throws -> String? {
        let violation = schema.check(try JSONValue.parse(object), by: SchemaChecker())
        return violation.map { "\($0.pointer): \($0.reason)" }
    }

    @Test func atlasSchemaIsTaken() throws {
        let weather = try schema(Self.weather)
        #expect(weather.properties.map(\.name).prefix(2) == ["_id", "deviceId"])
        #expect(weather.properties.map(\.column) == [.text, .text, .number, .number, .integer])
        func object(_ wind: String, id: String = "507f1f77bcf86cd799439011") -> String {
            #"""
            {"_id":"\#(id)","deviceId":"WX1278UIT","temperatureInFahrenheit":66.7,
            "barometricPressureInHg":29.65\#(wind)}
            """#
        }
        #expect(try fault(weather, object(#","windSpeedInMph":2"#)) == nil)
        #expect(try fault(weather, object("")) == "/windSpeedInMph: is required")
        for wrong in ["2.5", "2147483648", #""2""#, "null"] {
            #expect(
                try fault(weather, object(#","windSpeedInMph":\#(wrong)"#))
                    == "/windSpeedInMph: must be a 32-bit integer"
            )
        }
        #expect(
            try fault(weather, object(#","windSpeedInMph":2"#, id: "x"))
                == "/_id: must be an ObjectId"
        )
    }

    @Test func titleOfAtlasSchemaIsTheType() throws {
        let other = Self.weather.replacing("\"WeatherSensor\"", with: "\"Weather\"")
        #expect(throws: SchemaError(pointer: "/title", "must be the name of the type")) {
            try schema(other)
        }
    }

    @Test(arguments: [
        ("objectId", [#""507f1f77bcf86cd799439011""#], [#""507f1f77bcf86cd79943901""#, "1"]),
        (
            "uuid", [#""507F1F77-bcf8-6cd7-9943-901122334455""#],
            [#""507f1f77bcf86cd79943901122334455""#]
        ),
        ("string", [#""""#], ["1", "null"]),
        ("bool", ["true", "false"], ["0"]),
        ("int", ["1", "-2147483648", "2147483647", "2.0"], ["2147483648", "0.5"]),
        ("long", ["9223372036854775807"], ["9223372036854775808", "0.5"]),
        ("double", ["1", "0.5"], [#""1""#]),
        ("float", ["1", "0.5"], [#""1""#]),
        ("decimal", ["1", "0.5", #""12.50""#, "123456789012345678901234567890"], [#""1,2""#]),
        ("date", [#""2026-02-28T12:00:00.5+01:00""#], [#""2026-02-30T12:00:00Z""#, "1"]),
        ("object", ["{}"], ["[]"]), ("array", ["[]"], ["{}"]), ("null", ["null"], ["0"]),
    ])
    func atlasTypes(name: String, right: [String], wrong: [String]) throws {
        let type = try schema(x: #"{"bsonType":"\#(name)"}"#)
        for value in right { #expect(try fault(type, #"{"_id":"a","x":\#(value)}"#) == nil) }
        for value in wrong {
            #expect(
                try fault(type, #"{"_id":"a","x":\#(value)}"#)?.hasPrefix("/x: must be") == true
            )
        }
    }

    @Test(arguments: [
        (
            #"{"type":"integer"}"#, ["1", "1.0", "1e3", "123456789012345678901"], ["1.5", "true"],
            "must be an integer"
        ),
        (#"{"type":["string","null"]}"#, [#""""#, "null"], ["1"], "must be a string or null"),
        (#"{"minimum":1}"#, ["1", "1.0", #""a""#], ["0.9"], "must be at least 1"),
        (#"{"exclusiveMinimum":1}"#, ["1.1"], ["1"], "must be above 1"),
        (
            #"{"maximum":9007199254740993}"#, ["9007199254740993"], ["9007199254740994"],
            "must be at most 9007199254740993"
        ),
        (#"{"exclusiveMaximum":1}"#, ["0.9"], ["1.0"], "must be below 1"),
        (
            #"{"multipleOf":0.01}"#, ["19.99", "4.35", "1e300", "0"], ["0.005"],
            "must be a multiple of 0.01"
        ),
        (#"{"minLength":2}"#, [#""😀😀""#], [#""😀""#], "must have at least 2 characters"),
        (#"{"maxLength":2}"#, [#""😀😀""#], [#""abc""#], "must have at most 2 characters"),
        (#"{"pattern":"^a+$"}"#, [#""aa""#], [#""ab""#], "must match the pattern"),
        (#"{"format":"date"}"#, [#""2024-02-29""#], [#""2023-02-29""#], "must be an RFC 3339 date"),
        (
            #"{"enum":[1,"a"]}"#, ["1.0", #""a""#], ["2", #""b""#],
            "must be one of the listed values"
        ),
        (#"{"const":{"a":1}}"#, [#"{"a":1.0}"#], ["{}"], "must be the one value"),
        (#"{"minItems":1}"#, ["[1]"], ["[]"], "must have at least 1 items"),
        (#"{"maxItems":1}"#, ["[1]"], ["[1,2]"], "must have at most 1 items"),
        (#"{"minProperties":1}"#, [#"{"a":1}"#], ["{}"], "must have at least 1 properties"),
        (#"{"maxProperties":0}"#, ["{}"], [#"{"a":1}"#], "must have at most 0 properties"),
        (
            #"{"anyOf":[{"type":"null"},{"minimum":3}]}"#, ["null", "3"], ["2"],
            "must match one of the schemas of anyOf"
        ),
        (
            #"{"oneOf":[{"minimum":1},{"maximum":5}]}"#, ["0", "6"], ["3"],
            "must match no more than one of the schemas of oneOf"
        ),
        (#"{"not":{"type":"null"}}"#, ["1"], ["null"], "must not match the schema of not"),
        ("false", [], ["1"], "is not allowed here"),
    ])
    func keywords(x: String, right: [String], wrong: [String], reason: String) throws {
        let type = try schema(x: x)
        for value in right { #expect(try fault(type, #"{"_id":"a","x":\#(value)}"#) == nil) }
        for value in wrong {
            #expect(try fault(type, #"{"_id":"a","x":\#(value)}"#) == "/x: \(reason)")
        }
    }

    @Test func pointersNameTheFault() throws {
        let nested = try schema(
            x:
                #"{"type":"array","prefixItems":[true],"items":{"properties":{"a/b":{"type":"null"}}}}"#,
            #","additionalProperties":false"#
        )
        #expect(try fault(nested, #"{"_id":"a","x":[0,{"a/b":1}]}"#) == "/x/1/a~1b: must be null")
        #expect(try fault(nested, #"{"_id":"a","y":1}"#) == "/y: is not a property of this type")
        #expect(try fault(nested, "[]") == ": must be an object")
        let unique = try schema(x: #"{"uniqueItems":true}"#)
        #expect(
            try fault(unique, #"{"_id":"a","x":[1,{"a":[1]},1.0]}"#)
                == "/x/2: must not be there twice"
        )
        #expect(try fault(unique, #"{"_id":"a","x":[1,true,"1"]}"#) == nil)
    }

    @Test func keysAreTheirBytes() throws {
        let closed = try schema(x: "true", #","additionalProperties":false"#)
        let composed = try schema(x: #"{"const":"\u00e9"}"#)
        #expect(try fault(closed, #"{"_id":"a","x\u0301":1}"#) != nil)
        #expect(try fault(composed, #"{"_id":"a","x":"\u00e9"}"#) == nil)
        #expect(try fault(composed, #"{"_id":"a","x":"e\u0301"}"#) == "/x: must be the one value")
    }

    @Test(arguments: [
        (#"{"dependentRequired":{}}"#, "/properties/x/dependentRequired"),
        (#"{"patternProperties":{}}"#, "/properties/x/patternProperties"),
        (#"{"$anchor":"a"}"#, "/properties/x/$anchor"),
        (#"{"$id":"a"}"#, "/properties/x/$id"),
        (#"{"type":"int"}"#, "/properties/x/type"),
        (#"{"bsonType":"regex"}"#, "/properties/x/bsonType"),
        (#"{"type":"string","bsonType":"string"}"#, "/properties/x/bsonType"),
        (#"{"minimum":"1"}"#, "/properties/x/minimum"),
        (#"{"multipleOf":0}"#, "/properties/x/multipleOf"),
        (#"{"minLength":-1}"#, "/properties/x/minLength"),
        (#"{"pattern":"(?=a)"}"#, "/properties/x/pattern"),
        (#"{"format":"ipv4"}"#, "/properties/x/format"),
        (#"{"items":[true]}"#, "/properties/x/items"),
        (#"{"enum":[]}"#, "/properties/x/enum"), (#"{"anyOf":[]}"#, "/properties/x/anyOf"),
        (#"{"required":["a","a"]}"#, "/properties/x/required"),
        (##"{"$ref":"#"}"##, "/properties/x/$ref"),
        (##"{"$ref":"#/$defs/none"}"##, "/properties/x/$ref"), ("1", "/properties/x"),
        (#"{"properties":{"a/b":{"if":true}}}"#, "/properties/x/properties/a~1b/if"),
    ])
    func whatIsNotTakenIsNamed(x: String, pointer: String) {
        #expect(throws: SchemaError.self) { try schema(x: x) }
        do throws(SchemaError) { _ = try schema(x: x) } catch { #expect(error.pointer == pointer) }
    }

    @Test(arguments: [
        (#"{"type":"array"}"#, "/type"), ("true", "/type"),
        (#"{"type":"object"}"#, "/properties/_id"),
        (#"{"type":"object","properties":{"_id":true}}"#, "/required"), ("{", ""),
    ])
    func topHasAnID(text: String, pointer: String) {
        do throws(SchemaError) {
            _ = try schema(text)
            Issue.record("taken")
        } catch { #expect(error.pointer == pointer) }
    }

    @Test func tooLargeIsRefused() throws {
        let padding = String(repeating: " ", count: ObjectSchema.maximumBytes)
        #expect(throws: SchemaError.self) { try schema(Self.weather + padding) }
    }

    @Test func referencesMayRecurButNotLoop() throws {
        let list = try schema(
            x: ##"{"$ref":"#/$defs/list"}"##,
            ##","$defs":{"list":{"properties":{"next":{"$ref":"#/$defs/list"}},"required":["v"]}}"##
        )
        #expect(try fault(list, #"{"_id":"a","x":{"v":1,"next":{"v":1}}}"#) == nil)
        #expect(try fault(list, #"{"_id":"a","x":{"v":1,"next":{}}}"#) == "/x/next/v: is required")
        for loop in [##"{"$ref":"#/$defs/a"}"##, ##"{"allOf":[{"not":{"$ref":"#/$defs/a"}}]}"##] {
            #expect(throws: SchemaError.self) { try schema(x: "true", #","$defs":{"a":\#(loop)}"#) }
        }
    }

    private func doubling(_ levels: Int) -> String {
        var definitions = ##""d0":{"type":"null"}"##
        for level in 1...levels {
            let inner = ##"{"$ref":"#/$defs/d\##(level - 1)"}"##
            definitions += #","d\#(level)":{"allOf":[\#(inner),\#(inner)]}"#
        }
        return #","$defs":{\#(definitions)}"#
    }

    @Test("A schema that applies too many schemas to one value is refused with the place")
    func applications() throws {
        _ = try schema(x: ##"{"$ref":"#/$defs/d7"}"##, doubling(7))
        let error = #expect(throws: SchemaError.self) {
            try schema(x: ##"{"$ref":"#/$defs/d29"}"##, doubling(29))
        }
        #expect(error?.pointer.hasPrefix("/$defs/d") == true)
        #expect(error?.reason.contains("more than 1000 schemas apply to one value") == true)
    }

    @Test("A stored schema of that kind is still read, and a check that takes too long is refused")
    func storedSchema() throws {
        let text = """
            {"type":"object","required":["_id"],
            "properties":{"_id":{"type":"string"},"x":{"$ref":"#/$defs/d29"}}\(doubling(29))}
            """
        let stored = try ObjectSchema(Array(text.utf8), type: "T", isStored: true)
        let checker = SchemaChecker()
        let violation = stored.check(["_id": "a", "x": .null], by: checker)
        #expect(violation == SchemaViolation(pointer: "/x", "takes too long to check"))
        #expect(stored.check(["_id": "a"], by: checker) == nil)
    }

    @Test("The limit of a check grows with the object, so a large object is checked completely")
    func largeObject() throws {
        let list = try schema(x: #"{"items":{"allOf":[{"type":"integer"},{"minimum":0}]}}"#)
        let numbers = JSONValue.array((0..<60_000).map { .integer($0) })
        #expect(list.check(["_id": "a", "x": numbers], by: SchemaChecker()) == nil)
        let texts = try schema(
            x: #"{"items":{"pattern":"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}}"#
        )
        let id = JSONValue.string("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
        let many = JSONValue.array(Array(repeating: id, count: 6000))
        #expect(texts.check(["_id": "a", "x": many], by: SchemaChecker()) == nil)
    }

    @Test("A recursive schema whose branches double at each level fails in bounded time")
    func doublingRecursion() throws {
        let node = ##"""
            {"anyOf":[{"required":["b"],"properties":{"a":{"$ref":"#/$defs/n"}}},
            {"required":["c"],"properties":{"a":{"$ref":"#/$defs/n"}}}]}
            """##
        let tree = try schema(x: ##"{"$ref":"#/$defs/n"}"##, #","$defs":{"n":\#(node)}"#)
        let deep = (0..<24).reduce(JSONValue.object(["z": 1])) { inner, _ in ["a": inner] }
        let violation = tree.check(["_id": "a", "x": deep], by: SchemaChecker())
        #expect(violation?.reason == "takes too long to check")
    }

    @Test(.timeLimit(.minutes(1))) func workIsBounded() throws {
        var definitions = ##""d0":{"type":"null"}"##
        for level in 1...40 {
            let inner = ##"{"$ref":"#/$defs/d\##(level - 1)"}"##
            definitions += #","d\#(level)":{"anyOf":[\#(inner),\#(inner)]}"#
        }
        do throws(SchemaError) {
            let bomb = try schema(x: ##"{"$ref":"#/$defs/d30"}"##, #","$defs":{\#(definitions)}"#)
            let violation = bomb.check(["_id": "a", "x": 1], by: SchemaChecker())
            #expect(violation == SchemaViolation(pointer: "/x", "takes too long to check"))
        } catch {
            #expect(error.reason.contains("schemas apply to one value"))
        }
        let pattern = try schema(x: #"{"pattern":"^(a+)+[bd]$"}"#)
        let text = JSONValue.string(String(repeating: "a", count: 5000))
        let violation = pattern.check(["_id": "a", "x": text], by: SchemaChecker())
        #expect(violation == SchemaViolation(pointer: "/x", "takes too long to check"))
    }

    @Test(arguments: [
        (#"{"type":"string"}"#, SchemaColumn.text), (#"{"type":["string","null"]}"#, .text),
        (#"{"type":"integer"}"#, .integer), (#"{"type":["integer","number"]}"#, .number),
        (#"{"type":"boolean"}"#, .boolean), (#"{"type":"string","format":"date-time"}"#, .time),
        (#"{"bsonType":"date"}"#, .time), (#"{"bsonType":"long"}"#, .integer),
        (#"{"bsonType":"decimal"}"#, .text), (#"{"type":["string","integer"]}"#, .json),
        (#"{"type":"object"}"#, .json), ("true", .json), (#"{"enum":["a","b"]}"#, .text),
        (##"{"$ref":"#/$defs/n"}"##, .number),
    ])
    func columns(x: String, column: SchemaColumn) throws {
        let type = try schema(x: x, #","$defs":{"n":{"type":"number"}}"#)
        #expect(type.properties.map(\.column) == [.text, column])
    }
}
