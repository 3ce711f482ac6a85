import Foundation
import JSON
import JSONSchema
import Support
import Testing

/// Compares our checks with PyPI's `jsonschema`: 100,000 random values of random schemas.
@Suite(
    .timeLimit(.minutes(10)),
    .enabled(if: TestEnvironment.pythonForIngest != nil, "CARILLON_PYTHON_INGEST is not set")
)
struct SchemaAgreementTests {
    private static let count = 25_000

    /// Runs in four processes: a single one would take longer than all other tests.
    @Test(arguments: 0..<4) func jsonschemaSaysTheSame(part: Int) async throws {
        let python = try #require(TestEnvironment.pythonForIngest)
        let script = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "schemas.py").path
        let seed = ProcessInfo.processInfo.environment["SCHEMAS_SEED"].flatMap(Int.init) ?? 2020
        let file = FileManager.default.temporaryDirectory
            .appending(path: TestEnvironment.unique("carillon-schemas-"))
        defer { try? FileManager.default.removeItem(at: file) }
        _ = try await run(
            python,
            [script, String(Self.count), String(seed + part), file.path]
        )
        .successful("schemas.py")
        let lines = try Data(contentsOf: file).split(separator: UInt8(ascii: "\n"))
        let checker = SchemaChecker()
        var count = 0
        var valid = 0
        var differing = 0
        for line in lines {
            let parts = try JSONValue.parse(Array(line))
            let document = try #require(parts[0])
            let value = try #require(parts[1])
            let violation = try ValueSchema(document).check(value, by: checker)
            count += 1
            if violation == nil { valid += 1 }
            if (violation == nil) != parts[2]?.bool {
                differing += 1
                if differing <= 10 {
                    Issue.record("\(document.text) of \(value.text): \(violation as Any)")
                }
            }
        }
        #expect(count == Self.count)
        #expect(valid > count / 5 && valid < count / 5 * 4)
        #expect(differing == 0)
    }
}
