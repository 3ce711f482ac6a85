import Foundation
import Support
import Testing

@testable import HTTPServer

/// Our parser beside `h11`, input by input: 100,000 requests, whole and mutated, alone and
/// pipelined, each cut at random points for either.
///
/// Where both take an input they must have read the same requests: two readers that differ about
/// where a request ends are how requests are smuggled. Where only one takes it, the reason must be
/// among those below.
@Suite(
    .timeLimit(.minutes(5)),
    .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
)
struct H11Tests {
    /// What h11 takes and we refuse, by our words. h11 is a library that leaves these to who uses
    /// it, or follows what RFC 9112 only allows to a lenient reader.
    private static let stricter: Set<String> = [
        // Section 2.2: a lone LF MAY end a line. Not here: it is how smugglers hide lines.
        "a line feed without a carriage return",
        // Section 5.5: obs-text is opaque, but controls are invalid; h11 refuses NUL, CR and LF.
        "a control character",
        "a carriage return without a line feed",
        // h11 leaves targets and hosts to its user.
        "the target is neither a path nor an http URL",
        "the target has a character that cannot be in it",
        "invalid host in the target",
        "only OPTIONS may ask for *",
        "invalid Host header",
        // Section 6.3 lets equal lengths be merged, and a Transfer-Encoding override a length.
        "there is more than one Content-Length",
        "the Content-Length is not a number",
        "there are both a Transfer-Encoding and a Content-Length",
        "HTTP/1.0 has no Transfer-Encoding",
        "the Transfer-Encoding is not chunked alone",
        // Section 5.2: a folded line is refused, or replaced by blanks as h11 does.
        "a header line is not a name, a colon and a value",
        // RFC 9110: 501 for what is no method of ours, 417 for what cannot be expected, 505.
        "the method is not known",
        "nothing but 100-continue can be expected",
        "the version is neither HTTP/1.0 nor HTTP/1.1",
        "the version cannot be read",
        "the request line is not a method, a target and a version",
        "the method is not a token",
        // What a body holds is bounded.
        "the body is larger than any limit",
        "a chunk size is too long",
        "a chunk's extension is too long",
        "a chunk is longer than its size says",
        "a chunk has no size",
        "a chunk size is followed by something else",
    ]

    /// What we take, or still wait with, and h11 refuses, by h11's words.
    private static let laxer: [String] = [
        // RFC 9112 section 2.2: a server SHOULD ignore at least one empty line before a request.
        // h11 says the second when the network cuts that line in two.
        "no request line received", "illegal request line",
    ]

    @Test func bothReadTheSameRequests() async throws {
        let python = try #require(TestEnvironment.python)
        let script = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "h11_verdicts.py").path
        let file = FileManager.default.temporaryDirectory
            .appending(path: TestEnvironment.unique("carillon-h11-")).path
        defer { try? FileManager.default.removeItem(atPath: file) }
        // The same inputs each time, so that a failure is a change's; others by a seed of their own.
        let seed = ProcessInfo.processInfo.environment["H11_SEED"].flatMap(UInt32.init) ?? 9112
        var random = SeededGenerator(seed: UInt64(seed))
        _ = try await run(python, [script, "100000", "\(seed)", file])
            .successful("h11's verdicts")
        let records = [UInt8](try Data(contentsOf: URL(filePath: file)))

        var position = 0
        func text() -> ArraySlice<UInt8> {
            let length = records[position..<position + 4].reduce(0) { $0 << 8 | Int($1) }
            defer { position += 4 + length }
            return records[position + 4..<position + 4 + length]
        }
        var tally: [String: Int] = [:]
        while position < records.count {
            let input = Array(text())
            let theirs = String(decoding: text(), as: UTF8.self).split(separator: "\n")
                .map(String.init)
            let outcome = compare(read(input, &random), theirs)
            tally[outcome.name, default: 0] += 1
            if !outcome.isExplained {
                Issue.record(
                    """
                    seed \(seed): \(outcome.name)
                    \(String(decoding: input, as: UTF8.self).debugDescription)
                    """
                )
                if tally.count > 200 { break }
            }
        }
        #expect(tally.values.reduce(0, +) == 100_000)
        // Neither half may be empty, or nothing was compared.
        #expect(tally["both take it", default: 0] > 20_000)
        #expect(tally["both refuse it", default: 0] > 5_000)
        for (name, count) in tally.sorted(by: { $0.value > $1.value }) { print(count, name) }
    }

    private struct Outcome {
        let name: String
        let isExplained: Bool
    }

    /// Whole requests as h11's script writes them, then `E`, `M` or `C`; an `M` tells whether
    /// what there is of the next request can still become one.
    private func read(_ input: [UInt8], _ random: inout SeededGenerator) -> [String] {
        var parser = HTTP1Parser(
            limits: HTTP1Limits(targetBytes: 16_384, headBytes: 65_536, headerCount: 128)
        )
        var lines: [String] = []
        var head: HTTP1Head?
        var position = 0
        while position < input.count {
            let step = Int.random(in: 1...max(1, input.count / 2), using: &random)
            let end = min(input.count, position + step)
            parser.append(input[position..<end])
            position = end
            while let event = parser.next() {
                switch event {
                case .head(let found): head = found
                case .failure(let problem): return lines + ["E \(problem.detail)"]
                case .end(let body):
                    guard let whole = head else { return lines + ["E no head"] }
                    lines.append(line(whole, body))
                    if !whole.keepsAlive || whole.version == .http10 { return lines + ["C"] }
                }
            }
        }
        // h11 looks at the first bytes of a line that is not whole yet; we read whole lines.
        parser.append(Array("x\r\n\r\n".utf8))
        while let event = parser.next() {
            if case .failure = event { return lines + ["M, then E"] }
        }
        return lines + ["M"]
    }

    private func line(_ head: HTTP1Head, _ body: [UInt8]) -> String {
        let fields = head.headers.map { field in
            let name = field.name.lowercased()
            let value = name == "transfer-encoding" ? field.value.lowercased() : field.value
            return bytes(name) + [UInt8(ascii: ":")] + bytes(value)
        }
        let parts = [
            bytes(head.method.rawValue), bytes(head.target),
            Array(fields.joined(separator: [UInt8(ascii: "\n")])), body,
        ]
        return "R " + parts.map { $0.isEmpty ? "-" : hex($0) }.joined(separator: " ")
    }

    /// As it came: UTF-8, or the Latin-1 that it was taken for.
    private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    private func hex(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(
            decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] },
            as: UTF8.self
        )
    }

    private func compare(_ ours: [String], _ theirs: [String]) -> Outcome {
        let (us, them) = (ours.dropLast(), theirs.dropLast())
        let (ourEnd, theirEnd) = (ours.last ?? "", theirs.last ?? "")
        let common = min(us.count, them.count)
        for (ourRequest, theirRequest) in zip(us, them)
        where !isSame(ourRequest, theirRequest) {
            return Outcome(
                name: "other requests: \(ourRequest) | \(theirRequest)",
                isExplained: false
            )
        }
        if ourEnd.hasPrefix("E "), us.count == common {
            if theirEnd.hasPrefix("E "), them.count == common {
                return Outcome(name: "both refuse it", isExplained: true)
            }
            let reason = String(ourEnd.dropFirst(2))
            return Outcome(
                name: "h11 is laxer: \(reason)",
                isExplained: Self.stricter.contains(reason)
            )
        }
        if theirEnd.hasPrefix("E "), them.count == common {
            let reason = String(theirEnd.dropFirst(2))
            if us.count == common, ourEnd == "M, then E" {
                return Outcome(name: "h11 refuses it sooner", isExplained: true)
            }
            return Outcome(
                name: "h11 is stricter: \(reason)",
                isExplained: Self.laxer.contains { reason.hasPrefix($0) }
            )
        }
        let isSame = us.count == them.count && ourEnd.prefix(1) == theirEnd
        return Outcome(
            name: isSame ? "both take it" : "other ends: \(ourEnd) \(theirEnd)",
            isExplained: isSame
        )
    }

    /// An absolute form is taken apart by us: its host is the `Host`, whatever that said, and its
    /// path the target. h11 leaves both as they came.
    private func isSame(_ ours: String, _ theirs: String) -> Bool {
        if ours == theirs { return true }
        let (us, them) = (ours.split(separator: " "), theirs.split(separator: " "))
        guard them[2].lowercased().contains("3a2f2f"), us[1] == them[1], us[4] == them[4] else {
            return false
        }
        // A path that the URL leaves out is `/`, before a query too.
        return
            (us[2] == "2f" || them[2].hasSuffix(us[2])
            || us[2].hasPrefix("2f3f") && them[2].hasSuffix(us[2].dropFirst(2)))
            && withoutHost(us[3]) == withoutHost(them[3])
    }

    private func withoutHost(_ fields: Substring) -> [Substring] {
        var lines: [Substring] = []
        if fields == "-" { return [] }
        var line = fields.startIndex
        var index = fields.startIndex
        // By bytes: `0a` is a line's end only where a byte begins.
        while index < fields.endIndex {
            let next = fields.index(index, offsetBy: 2, limitedBy: fields.endIndex)
            guard let next else { break }
            if fields[index..<next] == "0a" {
                lines.append(fields[line..<index])
                line = next
            }
            index = next
        }
        lines.append(fields[line...])
        // `host:`
        return lines.filter { !$0.hasPrefix("686f73743a") }
    }
}
