import JSON
import Testing

@testable import RemoteConfig

/// Invalid conditions, refused by their name and position.
@Suite(.timeLimit(.minutes(1)))
struct ConditionRefusalTests {
    @Test(arguments: [
        ("", "expected an element at 1"), ("   ", "expected an element at 4"),
        ("true &&", "expected a blank beside && at 6"), ("true && ", "expected an element at 9"),
        ("&& true", "expected an element at 1"), ("true&&true", "expected a blank beside && at 5"),
        ("true &&true", "expected a blank beside && at 6"),
        ("true || false", "expected && or the end at 6"),
        ("(true)", "expected an element at 1"), ("!true", "expected an element at 1"),
        ("true true", "expected && or the end at 6"), ("TRUE", "unknown element TRUE at 1"),
        ("app.name == 'x'", "unknown element app.name at 1"), ("app", "unknown element app at 1"),
        ("true && device.model in ['x']", "unknown element device.model at 9"),
        ("app.audiences.inAtLeastOne(['x'])", "app.audiences is not supported at 1"),
        ("true && app.importedSegments.inAll(['x'])", "app.importedSegments is not supported at 9"),
        (
            "app.operatingSystemAndVersion.inAll(['x'])",
            "app.operatingSystemAndVersion is not supported at 1"
        ),
        ("app.browserAndVersion.x(['x'])", "app.browserAndVersion is not supported at 1"),
        ("app.version", "expected a method of app.version at 12"),
        ("app.version == '1'", "expected a method of app.version at 12"),
        ("app.version.startsWith(['1'])", "unknown operator startsWith of app.version at 13"),
        ("app.version.===(['1'])", "unknown operator === of app.version at 13"),
        ("app.version.=>(['1'])", "unknown operator => of app.version at 13"),
        ("app.version.==(['abc'])", "'abc' is not a version such as 1.2.3 at 17"),
        ("app.version.==([''])", "'' is not a version such as 1.2.3 at 17"),
        ("app.version.==(['1', '2'])", "one version, not several at 20"),
        ("app.version.==([])", "expected a text in single quotes at 17"),
        ("app.version.==( ['1'])", "expected ([ at 15"),
        ("app.version.==([ '1'])", "expected a text in single quotes at 17"),
        ("app.version .==(['1'])", "expected a method of app.version at 12"),
        ("app.version.contains (['1'])", "expected ( at 21"),
        ("app.version.contains([])", "an empty list at 23"),
        ("app.version.contains('1')", "expected [ at 22"),
        ("app.version.contains(['1',])", "expected a text in single quotes at 27"),
        ("app.version.contains([\"1\"])", "expected a text in single quotes at 23"),
        ("app.version.contains(['1)", "a text is not closed at 23"),
        (
            "app.version.matches(['(?=a)'])",
            "a pattern is not RE2's (a group begins with (?=, not RE2's, at 3) at 20"
        ),
        ("app.version.inAll(['1'])", "unknown operator inAll of app.version at 13"),
        ("app.id != 'x'", "unknown operator != of app.id at 8"),
        ("app.id == x", "expected a text in single quotes at 11"),
        ("app.id in ['x']", "unknown operator in of app.id at 8"),
        ("app.userProperty == 3", "expected [ at 17"),
        ("app.userProperty[''] == 3", "a key is empty at 18"),
        ("app.userProperty['k'] == '3'", "expected a number at 26"),
        ("app.userProperty['k'] == x", "x is not a number at 26"),
        ("app.customSignal['k'] == 0x10", "0x10 is not a number at 26"),
        ("app.customSignal['k'] == inf", "inf is not a number at 26"),
        ("app.customSignal['k'] ~ 3", "unknown operator  of a property at 23"),
        ("app.customSignal['k'].inAll(['3'])", "unknown operator inAll of a property at 23"),
        ("app.customSignal['k'].>=(['3'])", "unknown operator >= of a property at 23"),
        (
            "app.firstOpenTimestamp == ('2022-10-31T14:37:47')",
            "unknown operator == of app.firstOpenTimestamp at 24"
        ),
        ("app.firstOpenTimestamp > '2022-10-31T14:37:47'", "expected dateTime(…) at 26"),
        ("dateTime > dateTime('2022-10-31T14:37:47')", "unknown operator > of dateTime at 10"),
        ("dateTime < ('2022-10-31T14:37:47')", "expected dateTime(…) at 12"),
        (
            "dateTime < dateTime('2022-13-31T14:37:47')",
            "'2022-13-31T14:37:47' is not a time such as 2026-01-31T23:59:00 at 21"
        ),
        (
            "dateTime < dateTime('2022-02-30T14:37:47')",
            "'2022-02-30T14:37:47' is not a time such as 2026-01-31T23:59:00 at 21"
        ),
        (
            "dateTime < dateTime('2022-10-31 14:37:47')",
            "'2022-10-31 14:37:47' is not a time such as 2026-01-31T23:59:00 at 21"
        ),
        (
            "dateTime < dateTime('2022-10-31T14:37:60')",
            "'2022-10-31T14:37:60' is not a time such as 2026-01-31T23:59:00 at 21"
        ),
        (
            "dateTime < dateTime('2022-10-31')",
            "'2022-10-31' is not a time such as 2026-01-31T23:59:00 at 21"
        ),
        (
            "dateTime < dateTime('2022-10-31T14:37:47', 'Mars/Base')",
            "unknown time zone 'Mars/Base' at 44"
        ),
        (
            "dateTime < dateTime('2022-10-31T14:37:47', '../etc/passwd')",
            "unknown time zone '../etc/passwd' at 44"
        ),
        (
            "dateTime < dateTime('2022-10-31T14:37:47', 'Europe')",
            "unknown time zone 'Europe' at 44"
        ),
        (
            "dateTime < dateTime('2022-10-31T14:37:47', '')",
            "unknown time zone '' at 44"
        ),
        ("device.country == 'US'", "unknown operator of device.country at 16"),
        ("device.country in []", "an empty list at 20"),
        ("device.country in 'US'", "expected [ at 19"),
        ("device.os < 'ios'", "unknown operator < of device.os at 11"),
        ("percent == 10", "unknown operator == of percent at 9"),
        ("percent < 10", "unknown operator < of percent at 9"),
        ("percent <= 101", "percent over 100 at 12"),
        ("percent <= 100.000001", "percent over 100 at 12"),
        ("percent <= 99999999999999999999", "percent over 100 at 12"),
        ("percent <= -1", "expected a percentage at 12"),
        ("percent <= 1.", "a percentage has one to six digits after the point at 12"),
        ("percent <= 1.0000001", "a percentage has one to six digits after the point at 12"),
        ("percent between 20 and 10", "the bounds are reversed at 23"),
        ("percent between 20 to 10", "expected and at 20"),
        (
            "percent('ä') <= 10",
            "a seed is at most 32 characters of -_.0-9a-zA-Z, not 'ä' at 9"
        ),
        (
            "percent('0123456789012345678901234567890123') <= 10",
            "a seed is at most 32 characters of -_.0-9a-zA-Z, not "
                + "'0123456789012345678901234567890123' at 9"
        ),
        ("percent(seed) <= 10", "expected a text in single quotes at 9"),
        ("version", "expected (app.customSignal[ at 8"),
        ("version(app.userProperty['k']) == '1'", "expected (app.customSignal[ at 8"),
        ("version(app.customSignal['']) == '1'", "a key is empty at 26"),
        ("version(app.customSignal['k']) ~ '1'", "unknown operator  of a version at 32"),
        ("version(app.customSignal['k']) == 1", "expected a text in single quotes at 35"),
        (
            "version(app.customSignal['k']) == '1.x'",
            "'1.x' is not a version such as 1.2.3 at 35"
        ),
        ("device.country in ['ä'] && percent <= 101", "percent over 100 at 39"),
    ])
    func refused(expression: String, problem: String) {
        var context = ExpressionContext()
        let error = #expect(throws: ExpressionError.self) {
            try ConfigExpression(expression, in: &context)
        }
        #expect(error?.description == problem)
    }

    @Test func installationsOfOneConditionAreCounted() throws {
        func ids(_ count: Int) -> String {
            "app.firebaseInstallationId in [\((0..<count).map { "'\($0)'" }.joined(separator: ", "))]"
        }
        var context = ExpressionContext()
        _ = try ConfigExpression(ids(50), in: &context)
        _ = try ConfigExpression("\(ids(25)) && \(ids(25))", in: &context)
        #expect(throws: ExpressionError.self) { try ConfigExpression(ids(51), in: &context) }
        #expect(throws: ExpressionError.self) {
            try ConfigExpression("\(ids(25)) && \(ids(26))", in: &context)
        }
    }

    private func template(_ expressions: [String]) throws -> ConfigTemplate {
        let conditions = expressions.enumerated().map { index, expression -> JSONValue in
            ["name": .string("c\(index)"), "expression": .string(expression)]
        }
        return try ConfigTemplate(["conditions": .array(conditions)], namespace: .firebase)
    }

    @Test("A template has a bounded number of elements, each of which a fetch evaluates once")
    func elementBudget() throws {
        // Each would need a hash.
        let expressions = (0..<ConfigTemplate.maximumConditions).map { index in
            (0..<10).map { "percent('s\(index).\($0)') <= 50" }.joined(separator: " && ")
        }
        _ = try template(expressions)
        let error = #expect(throws: ConfigTemplateError.self) {
            _ = try template(expressions.dropLast() + [expressions[0] + " && true"])
        }
        #expect(
            error?.description == "condition c1999: the template's conditions have together more"
                + " than 20000 elements, at \(expressions[0].utf8.count + 5)"
        )
    }

    @Test(
        "A template has a bounded number of list values, each of which a fetch compares once",
        arguments: [
            ("device.language in [", "]"), ("device.country in [", "]"),
            ("app.version.exactlyMatches([", "])"), ("app.version.contains([", "])"),
        ]
    )
    func listBudget(before: String, after: String) throws {
        let whole = "'AQ'" + String(repeating: ", 'AQ'", count: 99)
        let expressions = Array(
            repeating: before + whole + after,
            count: ConfigTemplate.maximumConditions
        )
        _ = try template(expressions)
        let error = #expect(throws: ConfigTemplateError.self) {
            _ = try template(expressions.dropLast() + ["\(before)\(whole), 'AQ'\(after)"])
        }
        #expect(
            error?.description == "condition c1999: the template's lists have together more than"
                + " 200000 texts, at \(before.utf8.count + whole.utf8.count + 3)"
        )
    }

    @Test(
        "A pattern that compiles too slowly is refused by its condition, and served if stored"
    )
    func compileTime() throws {
        let slow = "(?i)" + String(repeating: "[\u{100}-\u{10FFFF}]", count: 5)
        let client: JSONValue = [
            "conditions": [
                [
                    "name": "slow",
                    "expression": .string("app.version.matches(['\(slow)', '^2'])"),
                ]
            ],
            "parameters": [
                "p": [
                    "defaultValue": ["value": "no"],
                    "conditionalValues": ["slow": ["value": "yes"]],
                ]
            ],
        ]
        let error = #expect(throws: ConfigTemplateError.self) {
            try ConfigTemplate(client, namespace: .firebase)
        }
        #expect(error?.description.hasPrefix("condition slow: a pattern is not RE2's (") == true)
        let stored = try ConfigTemplate(client, namespace: .firebase, isStored: true)
        #expect(stored.object["conditions"] == client["conditions"])
        let server: JSONValue = [
            "conditions": [
                [
                    "name": "slow",
                    "condition": [
                        "customSignal": [
                            "customSignalOperator": "STRING_CONTAINS_REGEX",
                            "customSignalKey": "k", "targetCustomSignalValues": [.string(slow)],
                        ]
                    ],
                ]
            ]
        ]
        let other = #expect(throws: ConfigTemplateError.self) {
            try ConfigTemplate(server, namespace: .server)
        }
        #expect(other?.description.hasPrefix("condition slow: a pattern is not RE2's (") == true)
        _ = try ConfigTemplate(server, namespace: .server, isStored: true)
    }

    @Test("Patterns that are small each share a budget, for compiling and for a fetch")
    func sharedPatternBudgets() throws {
        // Two ranges each.
        let folds = "'(?i)[\u{100}-\u{10FFFF}]{1}[\u{100}-\u{10FFFF}]'"
        func expression(_ pattern: String, _ count: Int) -> String {
            let patterns = Array(repeating: pattern, count: count).joined(separator: ", ")
            return "app.version.matches([\(patterns)])"
        }
        var error = #expect(throws: ConfigTemplateError.self) {
            try template([expression(folds, 21)])
        }
        #expect(
            error?.description.hasPrefix("condition c0: the template's patterns apply (?i)") == true
        )
        let members = (0..<240).map { String(Unicode.Scalar(0x100 + 2 * $0) ?? "a") }.joined()
        let costly = "'[\(members)]'"
        _ = try template([expression(costly, 1000)])
        error = #expect(throws: ConfigTemplateError.self) {
            try template([expression(costly, 1000), expression(costly, 1000)])
        }
        #expect(error?.description.hasPrefix("condition c1: the template's patterns, or") == true)
    }

    @Test("Patterns that are small as text and large when compiled have a budget per template")
    func patternBudget() throws {
        func template(_ count: Int) throws -> ConfigTemplate {
            let patterns = Array(repeating: "'(a?){130}a{100}b'", count: count)
            let expression = "app.version.matches([\(patterns.joined(separator: ", "))])"
            return try ConfigTemplate(
                ["conditions": [["name": "slow", "expression": .string(expression)]]],
                namespace: .firebase
            )
        }
        let one = try template(1).patternBytes
        #expect(one > 1000)
        let most = ExpressionContext.maximumPatternBytes / one
        #expect(try template(most).patternBytes <= ExpressionContext.maximumPatternBytes)
        do {
            _ = try template(most + 1)
            Issue.record("it was taken")
        } catch let error as ConfigTemplateError {
            #expect(error.description.contains("slow"))
            #expect(error.description.contains("larger than 4194304 bytes when compiled"))
        }
    }
}
