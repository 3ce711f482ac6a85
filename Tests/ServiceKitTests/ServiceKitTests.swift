import Observability
import ServiceKit
import Testing

@Suite(.timeLimit(.minutes(1)))
struct ArgumentsTests {
    private let options: [Arguments.Option] = [
        .flag("--json", ""), .value("--key", "<k>", ""), .values("--channel", "<c>", ""),
    ]

    @Test("Options come in both spellings, with operands between them")
    func optionsAreRead() throws {
        let arguments = try Arguments(
            ["app", "--key=a=b", "--channel", "x", "--json", "--channel", "y", "--", "--z"],
            options: options,
            maximumOperands: 2
        )
        #expect(arguments.operands == ["app", "--z"])
        #expect(arguments.value("--key") == "a=b")
        #expect(arguments.values("--channel") == ["x", "y"])
        #expect(arguments.has("--json"))
    }

    @Test(
        "An unknown word is refused by name",
        arguments: [
            (["--nope"], "--nope"), (["--key"], "--key"), (["--json=1"], "--json"),
            (["--key", "1", "--key", "2"], "--key"), (["a", "b"], "b"),
        ]
    )
    func strangersAreNamed(words: [String], culprit: String) {
        let error = #expect(throws: ArgumentsError.self) {
            try Arguments(words, options: options, maximumOperands: 1)
        }
        #expect(error?.description.contains(culprit) == true)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct NearestWordTests {
    @Test(
        "A word with a typing mistake or two gets a suggestion, if there is a similar word",
        arguments: [
            ("sned", "send"), ("SHOW", "show"), ("canc", "cancel"), ("lst", "list"), ("xyz", nil),
            ("s", nil), ("", nil), (String(repeating: "a", count: 5000), nil),
        ] as [(String, String?)]
    )
    func nearest(word: String, expected: String?) {
        #expect(nearestWord(to: word, among: ["send", "show", "list", "cancel"]) == expected)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct LogTests {
    private final class Lines: Sendable {
        private let lock = Lock()
        nonisolated(unsafe) private var bytes: [UInt8] = []
        func append(_ line: [UInt8]) { lock.withLock { unsafe bytes += line } }
        var text: String { lock.withLock { String(decoding: unsafe bytes, as: UTF8.self) } }
    }

    @Test("A JSON line has the time first, then the data, with every quote escaped")
    func linesAreJSON() {
        let lines = Lines()
        let log = Log(service: "test", level: .info, format: .json) { lines.append($0) }
        log.debug("not shown")
        log.info("listening", [.scheme: "ht\"tp\n", .port: 41_234])
        #expect(lines.text.hasPrefix("{\"time\":\"2"))
        #expect(
            lines.text.hasSuffix(
                "\"level\":\"info\",\"service\":\"test\",\"message\":\"listening\","
                    + "\"scheme\":\"ht\\\"tp\\n\",\"port\":41234}\n"
            )
        )
        #expect(!lines.text.contains("not shown"))
    }

    @Test(
        "Numbers are written as Swift writes them",
        arguments: [
            0, 0.001, 0.01, 0.1, 1, 1.5, 12.345, 12.34, 0.0005, 0.1234, 999_999_999.999, 1e9, 1e300,
            -1.5, 123_456.001, 100.02,
        ]
    )
    func numbersAreWrittenAsSwiftDoes(_ number: Double) {
        let lines = Lines()
        let log = Log(service: "test", level: .info, format: .json) { lines.append($0) }
        log.info("answered", [.durationMilliseconds: .double(number), .count: 0])
        #expect(lines.text.hasSuffix(",\"duration_ms\":\(number),\"count\":0}\n"))
    }

    @Test("Buffered lines are written whole, in pieces that a pipe accepts at once")
    func gatheredLines() {
        final class Writes: Sendable {
            private let lock = Lock()
            nonisolated(unsafe) private var pieces: [[UInt8]] = []
            func append(_ piece: [UInt8]) { lock.withLock { unsafe pieces.append(piece) } }
            var all: [[UInt8]] { lock.withLock { unsafe pieces } }
        }
        let writes = Writes()
        let log = Log(service: "test", level: .info, format: .json) { writes.append($0) }
        var lines = LogLines(log)
        lines.add(.debug, "not shown", [:])
        #expect(lines.isEmpty)
        let long = String(repeating: "x", count: 5000)
        for number in 0..<100 { lines.add(.info, "answered", [.count: .integer(number)]) }
        lines.add(.info, "answered", [.detail: .string(long)])
        lines.add(.info, "answered", [.count: 100])
        #expect(!lines.isEmpty)
        lines.writeAll()
        lines.writeAll()
        let pieces = writes.all
        #expect(pieces.allSatisfy { $0.last == UInt8(ascii: "\n") })
        // A line longer than a piece is written alone.
        let larger = pieces.filter { $0.count > 4096 }
        #expect(larger.map { $0.count { $0 == UInt8(ascii: "\n") } } == [1])
        let text = String(decoding: pieces.joined(), as: UTF8.self).split(separator: "\n")
        #expect(text.count == 102 && pieces.count < 10)
        for (number, line) in text.prefix(100).enumerated() {
            #expect(line.hasSuffix("\"count\":\(number)}"))
        }
    }

    @Test(
        "Times are civil dates in UTC, including leap years and the years before 1970",
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_795_295_045, "2026-11-21T21:04:05.000Z"), (-1, "1969-12-31T23:59:59.000Z"),
        ]
    )
    func timesAreCivil(seconds: Int, text: String) {
        #expect(Timestamp(secondsSince1970: seconds).text == text)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct MetricsTests {
    @Test("Counters, gauges and histograms are written in Prometheus' text format")
    func expositionIsPrometheusText() {
        let metrics = Metrics()
        metrics.counter(.pushEvents, ["result": "push"]).add(2)
        metrics.counter(.pushEvents, ["result": "push"]).add(1)
        metrics.gauge(.httpConnections).set(5)
        let histogram = metrics.histogram(.httpRequestDuration, bounds: [0.1, 1])
        histogram.observe(0.05)
        histogram.observe(Duration.seconds(3))
        let text = metrics.exposition()
        #expect(text.contains("push_events_total{result=\"push\"} 3\n"))
        #expect(text.contains("# TYPE http_server_open_connections gauge\n"))
        #expect(text.contains("http_server_request_duration_seconds_bucket{le=\"0.1\"} 1\n"))
        #expect(text.contains("http_server_request_duration_seconds_bucket{le=\"+Inf\"} 2\n"))
        #expect(text.contains("http_server_request_duration_seconds_count 2\n"))
    }
}
