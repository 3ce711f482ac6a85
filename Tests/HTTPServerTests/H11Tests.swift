import Foundation
import Support
import Testing

@testable import HTTPServer

/// Compares our parser with `h11`, input by input: 100,000 requests, unchanged and mutated, alone
/// and pipelined, each cut at random points for both.
///
/// If both accept an input, they must have read the same requests: two parsers that disagree on the
/// end of a request allow request smuggling. If only one accepts it, the reason must be among those
/// below.
@Suite(
    .timeLimit(.minutes(5)),
    .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
)
struct H11Tests {
    /// Inputs that h11 accepts and we refuse, by our messages. h11 is a library that leaves these
    /// to its caller, or follows RFC 9112 where it only permits a lenient parser.
    private static let stricter: Set<String> = [
        // Section 2.2: a lone LF MAY end a line. We refuse it, as smugglers hide lines with it.
        "a line feed without a carriage return",
        // Section 5.5: obs-text is opaque, but controls are invalid; h11 refuses NUL, CR and LF.
        "a control character",
        "a carriage return without a line feed",
        // h11 leaves targets and hosts to its caller.
        "the target is neither a path nor an http URL",
        "the target has a character that cannot be in it",
        "invalid host in the target",
        "only OPTIONS may ask for *",
        "invalid Host header",
        // Section 6.3 allows merging equal lengths, and a Transfer-Encoding that overrides a
        // length.
        "there is more than one Content-Length",
        "the Content-Length is not a number",
        "there are both a Transfer-Encoding and a Content-Length",
        "HTTP/1.0 has no Transfer-Encoding",
        "the Transfer-Encoding is not chunked alone",
        // Section 5.2: a folded line is refused, or replaced by blanks as h11 does.
        "a header line is not a name, a colon and a value",
        // RFC 9110: 501 for an unknown method, 417 for an unknown expectation, 505.
        "the method is not known",
        "nothing but 100-continue can be expected",
        "the version is neither HTTP/1.0 nor HTTP/1.1",
        "the version cannot be read",
        "the request line is not a method, a target and a version",
        "the method is not a token",
        // The size of a body is bounded.
        "the body is larger than any limit",
        "a chunk size is too long",
        "a chunk's extension is too long",
        "a chunk is longer than its size says",
        "a chunk has no size",
        "a chunk size is followed by something else",
    ]

    /// Inputs that we accept, or still wait for, and h11 refuses, by h11's messages.
    private static let laxer: [String] = [
        // RFC 9112 section 2.2: a server SHOULD ignore at least one empty line before a request.
        // h11 gives the second message when the network cuts that line in two.
        "no request line received", "illegal request line",
    ]

    @Test func bothReadTheSameRequests() async throws {
        let python = try #require(TestEnvironment.python)
        let script = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "h11_verdicts.py").path
        let file = FileManager.default.temporaryDirectory
            .appending(path: TestEnvironment.unique("carillon-h11-")).path
        defer { try? FileManager.default.removeItem(atPath: file) }
        // The inputs are the same each time, so that a failure belongs to a change; H11_SEED gives
        // others.
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
        // Neither count may be zero, or nothing was compared.
        #expect(tally["both take it", default: 0] > 20_000)
        #expect(tally["both refuse it", default: 0] > 5_000)
        for (name, count) in tally.sorted(by: { $0.value > $1.value }) { print(count, name) }
    }

    private struct Outcome {
        let name: String
        let isExplained: Bool
    }

    /// Reads complete requests as h11's script writes them, then `E`, `M` or `C`; an `M` says
    /// whether the rest can still become a request.
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
        // h11 checks the first bytes of an incomplete line; we read complete lines.
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

    /// Returns the original bytes: UTF-8, or the Latin-1 as which the text was read.
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

    /// Compares two requests. We split an absolute form: its host becomes the `Host`, whatever that
    /// said, and its path the target. h11 leaves both unchanged.
    private func isSame(_ ours: String, _ theirs: String) -> Bool {
        if ours == theirs { return true }
        let (us, them) = (ours.split(separator: " "), theirs.split(separator: " "))
        guard them[2].lowercased().contains("3a2f2f"), us[1] == them[1], us[4] == them[4] else {
            return false
        }
        // A path that the URL omits is `/`, also before a query.
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
        // The search is by bytes: `0a` is a line's end only at the start of a byte.
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
