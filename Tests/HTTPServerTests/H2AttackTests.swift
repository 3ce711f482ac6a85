import Foundation
import Observability
import Support
import Testing

/// Attacks on the server by `h2` and `hyperframe`, which share no code with libnghttp2.
@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
)
struct H2AttackTests {
    @Test func everyAttackEndsWithItsCodeAndHurtsNobodyElse() async throws {
        let python = try #require(TestEnvironment.python)
        let script = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "h2_attacks.py").path
        try await withServer { server in
            let output = try await run(python, [script, "\(server.port)"]).successful("attacks")
            let lines = output.split(separator: "\n")
            #expect(lines.count >= 40)
            for line in lines {
                let parts = line.split(separator: ": ", maxSplits: 1)
                let ends = parts.last?.split(separator: ", expected ") ?? []
                // If two limits are exceeded at once, either may be reported.
                let allowed = ends.last?.components(separatedBy: " or ") ?? []
                #expect(ends.count == 2 && allowed.contains(String(ends[0])), "\(line)")
            }
            // All of their connections have ended.
            let connections = server.metrics.gauge(.httpConnections)
            _ = try await eventually("every connection is gone") {
                connections.value == 0 ? true : nil
            }
        }
    }
}

/// The clients of nghttp2.
@Suite(
    .timeLimit(.minutes(2)),
    .enabled(
        if: FileManager.default.isExecutableFile(atPath: "/usr/bin/h2load"),
        "no nghttp2-client"
    )
)
struct NghttpTests {
    @Test(arguments: [[], ["--h1"]])
    func h2loadGetsEveryAnswer(_ options: [String]) async throws {
        try await withServer { server in
            let url = "http://127.0.0.1:\(server.port)/hello/x"
            let load =
                ["-c", "10", "-n", "5000", "-t", "1"] + (options.isEmpty ? ["-m", "50"] : [])
            let output = try await run("/usr/bin/h2load", options + load + [url])
                .successful("h2load")
            #expect(output.contains("status codes: 5000 2xx, 0 3xx, 0 4xx, 0 5xx"), "\(output)")
        }
    }

    @Test func nghttpSendsAndGetsABody() async throws {
        try await withServer { server in
            let url = "http://127.0.0.1:\(server.port)/echo"
            let answer = try await run(
                "/usr/bin/nghttp",
                ["-d", "/dev/stdin", url],
                input: Array("a body".utf8)
            )
            let output = try answer.successful("nghttp")
            #expect(output.hasPrefix("a body"), "\(output) \(answer.errors)")
        }
    }
}
