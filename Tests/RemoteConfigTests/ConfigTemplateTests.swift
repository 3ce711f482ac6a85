import JSON
import RemoteConfig
import Testing

/// Validation of templates, and their stored form.
@Suite(.timeLimit(.minutes(1)))
struct ConfigTemplateTests {
    private func template(_ json: String) throws -> ConfigTemplate {
        try ConfigTemplate(try JSONValue.parse(json), namespace: .firebase)
    }

    @Test func emptyOnesAreWhole() throws {
        for json in [
            "{}", #"{"conditions":null,"parameters":null}"#,
            #"{"parameterGroups":{},"version":{}}"#,
        ] {
            #expect(try template(json) == .empty)
        }
        #expect(
            ConfigTemplate.empty.object.text
                == #"{"conditions":[],"parameters":{},"parameterGroups":{}}"#
        )
    }

    @Test func whatIsKeptIsWhatWasGiven() throws {
        let read = try template(
            """
            {"version":{"versionNumber":"7","updateTime":"2026-01-01T00:00:00Z",
              "updateUser":{"email":"a@b"},"updateOrigin":"CONSOLE","description":"spring"},
            "etag":"etag-7",
            "parameterGroups":{"texts":{"description":"shown","parameters":{
              "z":{"defaultValue":{"useInAppDefault":true},"valueType":"JSON"},
              "empty":{}}}, "none":{}},
            "parameters":{
              "welcome":{"description":"greets","conditionalValues":{"second":{"value":"b"},
                "first":{"useInAppDefault":true}},"defaultValue":{"value":"a"}},
              "_1":{"defaultValue":{"value":"1.5e3"},"valueType":"NUMBER"},
              "isOn":{"defaultValue":{"value":"true"},"valueType":"BOOLEAN"},
              "tree":{"defaultValue":{"value":"{\\"a\\":[1]}"},"valueType":"JSON"},
              "plain":{"valueType":"PARAMETER_VALUE_TYPE_UNSPECIFIED"}},
            "conditions":[{"name":"first","expression":"true","tagColor":"DEEP_ORANGE"},
              {"expression":"false","name":"second",
               "tagColor":"CONDITION_DISPLAY_COLOR_UNSPECIFIED"}]}
            """
        )
        #expect(read.versionDescription == "spring")
        #expect(
            read.object.text == """
                {"conditions":[{"name":"first","expression":"true","tagColor":"DEEP_ORANGE"},\
                {"name":"second","expression":"false"}],"parameters":{\
                "welcome":{"description":"greets","conditionalValues":{"second":{"value":"b"},\
                "first":{"useInAppDefault":true}},"defaultValue":{"value":"a"},"valueType":"STRING"},\
                "_1":{"defaultValue":{"value":"1.5e3"},"valueType":"NUMBER"},\
                "isOn":{"defaultValue":{"value":"true"},"valueType":"BOOLEAN"},\
                "tree":{"defaultValue":{"value":"{\\"a\\":[1]}"},"valueType":"JSON"},\
                "plain":{"valueType":"STRING"}},"parameterGroups":{"texts":{"description":"shown",\
                "parameters":{"z":{"defaultValue":{"useInAppDefault":true},"valueType":"JSON"},\
                "empty":{"valueType":"STRING"}}},"none":{"parameters":{}}}}
                """
        )
        #expect(read.defaults.map(\.key) == ["welcome", "_1", "isOn", "tree"])
        // The stored form is accepted again, and is the same.
        let again = try ConfigTemplate(.object(read.object), namespace: .firebase)
        #expect(again.object == read.object)
    }

    @Test(arguments: [
        ("[]", "a template is an object, not an array"),
        (#"{"parameter":{}}"#, "parameter is not known"),
        (#"{"conditions":{}}"#, "conditions: is an object, not a list"),
        (#"{"conditions":["a"]}"#, "condition number 1: is a string, not an object"),
        (#"{"conditions":[{"expression":"true"}]}"#, "condition number 1: has no name"),
        (#"{"conditions":[{"name":"","expression":"true"}]}"#, "condition number 1: has no name"),
        (
            #"{"conditions":[{"name":7,"expression":"true"}]}"#,
            "condition number 1: name is a number, not a text"
        ),
        (#"{"conditions":[{"name":"a"}]}"#, "condition a: has no expression"),
        (
            #"{"conditions":[{"name":"a","expression":true}]}"#,
            "condition a: expression is a boolean, not a text"
        ),
        (
            #"{"conditions":[{"name":"beta","expression":"percent <= 101"}]}"#,
            "condition beta: percent over 100 at 12"
        ),
        (
            #"{"conditions":[{"name":"a","expression":"app.audiences.inAll(['x'])"}]}"#,
            "condition a: app.audiences is not supported at 1"
        ),
        (
            #"{"conditions":[{"name":"a","expression":"true"},{"name":"a","expression":"true"}]}"#,
            "condition a: comes twice"
        ),
        (
            #"{"conditions":[{"name":"a","expression":"true","tagColor":"RED"}]}"#,
            "condition a: unknown tagColor \"RED\"; use BLUE, BROWN, CYAN, DEEP_ORANGE, GREEN, "
                + "INDIGO, LIME, ORANGE, PINK, PURPLE, TEAL"
        ),
        (
            #"{"conditions":[{"name":"a","condition":{"true":{}}}]}"#,
            "condition a: condition is not known"
        ),
        (#"{"parameters":[]}"#, "parameters: its parameters are an array, not an object"),
        (#"{"parameters":{"a":"b"}}"#, "parameter a: is a string, not an object"),
        (#"{"parameters":{"1a":{}}}"#, "parameter 1a: a key begins with a letter or _"),
        (#"{"parameters":{"":{}}}"#, "parameter : a key begins with a letter or _"),
        (#"{"parameters":{"ä":{}}}"#, "parameter ä: a key begins with a letter or _"),
        (
            #"{"parameters":{"a":{}},"parameterGroups":{"g":{"parameters":{"a":{}}}}}"#,
            "parameter a: comes twice, here and in another group"
        ),
        (#"{"parameters":{"a":{"default":{}}}}"#, "parameter a: default is not known"),
        (
            #"{"parameters":{"a":{"valueType":"TEXT"}}}"#,
            "parameter a: unknown valueType \"TEXT\"; use STRING, BOOLEAN, NUMBER or JSON"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":"b"}}}"#,
            "parameter a: a value is an object, not a string"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{}}}}"#,
            "parameter a: a value has neither value nor useInAppDefault"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"value":true}}}}"#,
            "parameter a: value is a boolean, not a text"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"value":"b","useInAppDefault":true}}}}"#,
            "parameter a: a value is one thing, not several"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"useInAppDefault":false}}}}"#,
            "parameter a: useInAppDefault must be true, not false"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"personalizationValue":{"personalizationId":"p"}}}}}"#,
            "parameter a: personalizationValue is not supported"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"rolloutValue":{}}}}}"#,
            "parameter a: rolloutValue is not supported"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"experimentValue":{}}}}}"#,
            "parameter a: experimentValue is not supported"
        ),
        (
            #"{"parameters":{"a":{"conditionalValues":{"b":{"value":"c"}}}}}"#,
            "parameter a: there is no condition b"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"value":"yes"},"valueType":"BOOLEAN"}}}"#,
            "parameter a: \"yes\" is not a BOOLEAN"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"value":"0x1"},"valueType":"NUMBER"}}}"#,
            "parameter a: \"0x1\" is not a NUMBER"
        ),
        (
            #"{"parameters":{"a":{"valueType":"JSON","defaultValue":{"value":"{a}"}}}}"#,
            "parameter a: \"{a}\" is not a JSON"
        ),
        (
            #"{"parameters":{"a":{"defaultValue":{"value":"\u0000"}}}}"#,
            "parameter a: value has a NUL character"
        ),
        (#"{"parameterGroups":{"":{}}}"#, "group : has no name"),
        (#"{"parameterGroups":{"g":[]}}"#, "group g: is an array, not an object"),
        (#"{"parameterGroups":{"g":{"name":"x"}}}"#, "group g: name is not known"),
        (
            #"{"parameterGroups":{"g":{"parameters":[]}}}"#,
            "group g: its parameters are an array, not an object"
        ),
        (#"{"version":7}"#, "version: is a number, not an object"),
        (#"{"version":{"description":7}}"#, "version: description is a number, not a text"),
    ])
    func refused(json: String, problem: String) {
        let error = #expect(throws: ConfigTemplateError.self) { try template(json) }
        #expect(error?.description == problem)
    }

    @Test(
        "Each field is accepted in both spellings of proto3's JSON, and stored in that of responses"
    )
    func bothSpellings() throws {
        let camel = #"""
            {"conditions":[{"name":"a","expression":"true","tagColor":"BLUE"}],
             "parameters":{"snake_key":{"defaultValue":{"useInAppDefault":true},
             "conditionalValues":{"a":{"value":"1"}},"valueType":"NUMBER"}},
             "parameterGroups":{"a_group":{"parameters":{"camelKey":{}}}}}
            """#
        let snake = #"""
            {"conditions":[{"name":"a","expression":"true","tag_color":"BLUE"}],
             "parameters":{"snake_key":{"default_value":{"use_in_app_default":true},
             "conditional_values":{"a":{"value":"1"}},"value_type":"NUMBER"}},
             "parameter_groups":{"a_group":{"parameters":{"camelKey":{}}}}}
            """#
        #expect(try template(snake).object == template(camel).object)
        for (json, problem) in [
            (
                #"{"parameters":{},"parameterGroups":{},"parameter_groups":{}}"#,
                "parameterGroups comes twice, the second time as parameter_groups"
            ),
            (
                #"{"parameters":{"a":{"value_type":"JSON","valueType":"JSON"}}}"#,
                "parameter a: valueType comes twice, the second time as value_type"
            ),
            (
                #"{"parameters":{"a":{"Value_Type":"JSON"}}}"#,
                "parameter a: Value_Type is not known"
            ),
            (
                #"{"parameters":{"a":{"default_value":{"rollout_value":{}}}}}"#,
                "parameter a: rolloutValue is not supported"
            ),
        ] {
            let error = #expect(throws: ConfigTemplateError.self) { try template(json) }
            #expect(error?.description == problem)
        }
    }

    @Test("A BOOLEAN is accepted in any case, as Firebase's console writes it, and stays unchanged")
    func booleans() throws {
        for text in ["true", "TRUE", "False", "fAlSe"] {
            let read = try template(
                #"{"parameters":{"a":{"defaultValue":{"value":"\#(text)"},"valueType":"BOOLEAN"}}}"#
            )
            #expect(read.defaults.map(\.value) == [text])
        }
    }

    /// Lengths count Unicode scalars: each is accepted at its limit, and refused beyond.
    @Test func limits() throws {
        func text(_ count: Int) -> JSONValue {
            .string(String(repeating: "\u{1F600}", count: count))
        }
        let cases: [(Int, (Int) -> JSONValue)] = [
            (256, { ["parameters": .object(["a\(text($0 - 1).string ?? "")": [:]])] }),
            (256, { ["parameters": ["a": ["description": text($0)]]] }),
            (256, { ["parameterGroups": .object([text($0).string ?? "": [:]])] }),
            (256, { ["parameterGroups": ["g": ["description": text($0)]]] }),
            (256, { ["conditions": [["name": text($0), "expression": "true"]]] }),
            (1024, { ["version": ["description": text($0)]] }),
            (1_000_000, { ["parameters": ["a": ["defaultValue": ["value": text($0)]]]] }),
            (
                3000,
                { count in
                    let half = (0..<count / 2).map { ("a\($0)", [:] as JSONValue) }
                    let rest = (count / 2..<count).map { ("a\($0)", [:] as JSONValue) }
                    return [
                        "parameters": .object(JSONObject(half)),
                        "parameterGroups": ["g": ["parameters": .object(JSONObject(rest))]],
                    ]
                }
            ),
            (
                2000,
                { count in
                    let conditions = (0..<count).map { index in
                        ["name": .string("c\(index)"), "expression": "true"] as JSONValue
                    }
                    return ["conditions": .array(conditions)]
                }
            ),
        ]
        for (limit, make) in cases {
            _ = try ConfigTemplate(make(limit), namespace: .firebase)
            #expect(throws: ConfigTemplateError.self) {
                try ConfigTemplate(make(limit + 1), namespace: .firebase)
            }
        }
        // The limit is for all values together, those of conditions too.
        let values: JSONValue = [
            "conditions": [["name": "c", "expression": "true"]],
            "parameters": [
                "a": ["defaultValue": ["value": text(600_000)]],
                "b": ["conditionalValues": ["c": ["value": text(400_001)]]],
            ],
        ]
        #expect(throws: ConfigTemplateError.self) {
            try ConfigTemplate(values, namespace: .firebase)
        }
    }

    /// Two strings that Unicode treats as equivalent are two keys.
    @Test func keysAreTheirBytes() throws {
        let read = try template(#"{"parameters":{"a\u00e9":{},"ae\u0301":{}}}"#)
        #expect(read.object["parameters"]?.object?.count == 2)
    }
}
