import Foundation
import JSON
import JSONSchema
import Testing

/// The JSON Schema Test Suite, from the folder `draft2020-12` that `JSON_SCHEMA_SUITE` names: every
/// case of the supported keywords. A schema with others must be refused by the keyword's name.
@Suite(
    .enabled(
        if: ProcessInfo.processInfo.environment["JSON_SCHEMA_SUITE"] != nil,
        "JSON_SCHEMA_SUITE names no folder"
    )
)
struct SchemaSuiteTests {
    private static let files = [
        "additionalProperties", "allOf", "anyOf", "boolean_schema", "const", "default", "enum",
        "exclusiveMaximum", "exclusiveMinimum", "infinite-loop-detection", "items", "maxItems",
        "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties",
        "minimum", "multipleOf", "not", "oneOf", "pattern", "prefixItems", "properties", "ref",
        "required", "type", "uniqueItems", "optional/bignum", "optional/float-overflow",
        "optional/format/date-time", "optional/format/date", "optional/format/email",
        "optional/format/time", "optional/format/uri", "optional/format/uuid",
    ]

    /// Reasons for which a schema of the suite may be refused.
    private static let refusals = [
        "the keyword is not taken", "must begin with #/$defs/",
        "is taken at the top alone, and is a string",
    ]

    @Test func casesAreAnsweredAsTheSuiteSays() throws {
        let folder = try #require(ProcessInfo.processInfo.environment["JSON_SCHEMA_SUITE"])
        let checker = SchemaChecker()
        var checked = 0
        var refused = 0
        for file in Self.files {
            let url = URL(filePath: folder).appending(path: "\(file).json")
            let groups = try JSONValue.parse(Array(try Data(contentsOf: url))).array ?? []
            #expect(!groups.isEmpty)
            for group in groups {
                let name = "\(file): \(group["description"]?.string ?? "")"
                let tests = group["tests"]?.array ?? []
                do throws(SchemaError) {
                    let schema = try ValueSchema(group["schema"] ?? .null)
                    for test in tests {
                        let violation = schema.check(test["data"] ?? .null, by: checker)
                        let what = test["description"]?.string ?? ""
                        #expect((violation == nil) == test["valid"]?.bool, "\(name): \(what)")
                        checked += 1
                    }
                } catch {
                    #expect(Self.refusals.contains(error.reason), "\(name): \(error)")
                    refused += tests.count
                }
            }
        }
        #expect(checked >= 790)
        print("\(checked) cases of the suite, \(refused) of schemas that are refused")
    }
}
