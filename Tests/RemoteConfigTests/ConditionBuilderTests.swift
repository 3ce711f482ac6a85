import Foundation
import Support
import Testing

@testable import RemoteConfig

/// Compares our parser of conditions with PyPI's `firebase-remote-config`: 100,000 random
/// conditions of its builder.
///
/// Those with an element that needs Google are refused by its name, all others are accepted, and
/// our output is what was written. Its parser, which takes a millisecond for each, reads 5,000 of
/// our outputs; all of them with CONDITIONS_READ=100000.
@Suite(
    .timeLimit(.minutes(10)),
    .enabled(if: TestEnvironment.pythonWithFirebase != nil, "CARILLON_PYTHON_FIREBASE is not set")
)
struct ConditionBuilderTests {
    @Test func whatTheBuilderWritesIsTakenAndGivenBack() async throws {
        let python = try #require(TestEnvironment.pythonWithFirebase)
        let script = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "conditions.py").path
        let file = FileManager.default.temporaryDirectory
            .appending(path: TestEnvironment.unique("carillon-conditions-"))
        defer { try? FileManager.default.removeItem(at: file) }
        let environment = ProcessInfo.processInfo.environment
        let seed = environment["CONDITIONS_SEED"] ?? "2016"
        let toRead = environment["CONDITIONS_READ"].flatMap(Int.init) ?? 5000
        _ = try await run(python, [script, "write", "100000", seed, file.path])
            .successful("the builder's conditions")

        var context = ExpressionContext()
        var taken = 0
        var refused = 0
        var given: [String] = []
        let lines = String(decoding: try Data(contentsOf: file), as: UTF8.self)
            .utf8.split(separator: UInt8(ascii: "\n"))
        for line in lines {
            let text = String(decoding: line.dropFirst(2), as: UTF8.self)
            do throws(ExpressionError) {
                // Each belongs to a template of its own; time zones are not read again.
                var own = ExpressionContext()
                swap(&own.zones, &context.zones)
                defer { swap(&own.zones, &context.zones) }
                let expression = try ConfigExpression(text, in: &own)
                #expect(line.first == UInt8(ascii: "+"), "taken: \(text)")
                let back = expression.description
                #expect(back.utf8.elementsEqual(text.utf8), "\(text) is given back as \(back)")
                if given.count < toRead { given.append(back) }
                taken += 1
            } catch {
                #expect(line.first == UInt8(ascii: "-"), "refused: \(text): \(error)")
                #expect(
                    error.description.hasPrefix("app.audiences is not supported at ")
                        || error.description.hasPrefix("app.importedSegments is not supported at "),
                    "\(text): \(error)"
                )
                refused += 1
            }
        }
        #expect(taken + refused == 100_000)
        #expect(refused > 1000)

        try Data(given.joined(separator: "\n").utf8).write(to: file)
        let verdict = try await run(python, [script, "read", file.path])
            .successful("the parser's reading")
        #expect(verdict.hasSuffix("READ \(given.count)"), "\(verdict.prefix(2000))")
        #expect(!verdict.contains("WRONG"), "\(verdict.prefix(2000))")
    }
}
