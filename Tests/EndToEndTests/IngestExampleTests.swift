import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// `deploy/examples/IngestClient`, built as a reader would build it.
    @Suite(
        "The example client stores objects until they are acknowledged",
        .runningIngest,
        .serialized,
        needsBroker,
        .enabled(
            if: TestEnvironment.value("CARILLON_INGEST_EXAMPLE") != nil,
            "CARILLON_INGEST_EXAMPLE is not set"
        ),
        .timeLimit(.minutes(10))
    )
    struct IngestExampleTests {
        private static let kills = 10
        private static let objects = 10_000

        @Test("Ten kills during 10,000 objects with failures lose no object and store no duplicate")
        func kills() async throws {
            let bench = try await IngestBench()
            let proxy = try await Proxy(bench)
            let ids = (0..<Self.objects).map { _ in IngestBench.makeID() }
            let folder = "\(bench.stack.folder)/\(TestEnvironment.unique("queue-"))"
            let slice = Self.objects / Self.kills
            var acknowledged: Set<String> = []
            for round in 0..<Self.kills {
                // Objects that were not acknowledged as written before the last kill are submitted
                // again.
                let given = ids[..<((round + 1) * slice)].filter { !acknowledged.contains($0) }
                let client = try await start(bench, proxy.url, folder, given)
                // In one round it is killed while it writes, in another while it sends or waits for
                // responses.
                let wanted = given.isEmpty ? 0 : Int.random(in: 0..<given.count)
                _ = try await eventually("the client writes: \(client.finalBytes)") {
                    client.lines().count >= wanted ? true : nil
                }
                try await Task.sleep(for: .milliseconds(Int.random(in: 0...400)))
                client.signal(SIGKILL)
                #expect(await client.exit() == .signal(SIGKILL))
                // A line that the kill cut is not an acknowledgement.
                acknowledged.formUnion(client.lines().filter { $0.utf8.count == 24 })
            }
            let left = ids.filter { !acknowledged.contains($0) }
            let client = try await start(bench, proxy.url, folder, left, ["--drain"])
            #expect(await client.exit() == .status(0), "\(client.finalBytes)")
            acknowledged.formUnion(client.lines())
            #expect(acknowledged == Set(ids))

            let rows = try await bench.rows("WeatherSensor", count: ids.count)
            #expect(rows.count == ids.count && rows == ids.sorted())
            let faults = try await http("GET", "\(proxy.url)/faults").text
            let sent = try await bench.count("ingest_objects_accepted_total")
            print("example client: \(sent) objects accepted for \(ids.count); requests \(faults)")
            for kind in ["dropped", "unanswered", "cut", "503", "429"] {
                #expect(faults.contains("\"\(kind)\""), "the day was not bad enough: \(faults)")
            }
            let files = try FileManager.default.contentsOfDirectory(atPath: folder)
            #expect(files == ["lock"], "\(files)")
            await proxy.process.stop()
        }

        @Test("Refused objects are quarantined, ids are made, and a folder has one process")
        func refused() async throws {
            let bench = try await IngestBench()
            let folder = "\(bench.stack.folder)/\(TestEnvironment.unique("queue-"))"
            let bad = IngestBench.makeID()
            let lines = [
                IngestBench.reading(bad, ["windSpeedInMph": "calm"]).text,
                "{\"deviceId\": \"without an id\"}", "{}", "no JSON", "{\"_id\": \"seven\"}", "",
            ]
            let client = try await ChildProcess.start(
                Self.program,
                arguments(bench, bench.service.url, folder) + ["--drain"],
                input: Array(lines.joined(separator: "\n").utf8)
            )
            #expect(await client.exit() == .status(0), "\(client.finalBytes)")
            let ids = client.lines()
            #expect(ids.count == 3 && ids[0] == bad)
            #expect(client.lines(of: .errors).count >= 2)
            let rows = try await bench.rows("WeatherSensor", "_id, \"deviceId\"", count: 1)
            #expect(rows == ["\(ids[1])|without an id"])
            let apart = try await run(Self.program, ["--folder", folder, "--refused"])
                .successful("--refused").split(separator: "\n")
                .map { try JSONValue.parse(String($0)) }
            #expect(apart.map { $0["id"]?.string } == [ids[0], ids[2]])
            #expect(apart.map { $0["pointer"]?.string } == ["/windSpeedInMph", "/deviceId"])
            #expect(apart.allSatisfy { $0["reason"]?.string?.isEmpty == false })

            // Without --drain it keeps running and has the folder locked.
            let holder = try await start(bench, bench.service.url, folder, [IngestBench.makeID()])
            _ = try await holder.line("an id") { $0.utf8.count == 24 }
            let second = try await run(Self.program, ["--folder", folder, "--refused"])
            #expect(second.exit == .status(1) && second.errors.contains("in use"))
            await holder.stop()
            let help = try await run(Self.program, ["--help"]).successful("--help")
            #expect(help.contains("--drain") && help.contains("INGEST_KEY_RETENTION"))
        }

        @Test("A client that is told to drain while its request is answered ends in order")
        func drained() async throws {
            let bench = try await IngestBench()
            let folder = "\(bench.stack.folder)/\(TestEnvironment.unique("queue-"))"
            for _ in 0..<30 {
                let id = IngestBench.makeID()
                let client = try await start(bench, bench.service.url, folder, [id], ["--drain"])
                #expect(await client.exit() == .status(0), "\(client.finalBytes)")
                #expect(client.lines() == [id])
            }
            #expect(try await bench.rows("WeatherSensor", count: 30).count == 30)
        }

        private static let program = TestEnvironment.value("CARILLON_INGEST_EXAMPLE") ?? ""

        private func arguments(_ bench: IngestBench, _ url: String, _ folder: String) -> [String] {
            [
                "--url", url, "--app", bench.app.id, "--key", bench.app.appKey,
                "--type", "WeatherSensor", "--folder", folder,
            ]
        }

        private func start(
            _ bench: IngestBench,
            _ url: String,
            _ folder: String,
            _ ids: [String],
            _ more: [String] = []
        ) async throws -> ChildProcess {
            let text = ids.map { IngestBench.reading($0).text + "\n" }.joined()
            return try await ChildProcess.start(
                Self.program,
                arguments(bench, url, folder) + more,
                input: Array(text.utf8)
            )
        }

        /// The network in between.
        private struct Proxy {
            let process: ChildProcess
            let url: String

            init(_ bench: IngestBench) async throws {
                let port = try #require(URLComponents(string: bench.service.url)?.port)
                process = try await ChildProcess.start(
                    "/usr/bin/python3",
                    [scriptFile("ingest_proxy.py"), String(port), "20"],
                    environment: ["PYTHONDONTWRITEBYTECODE": "1"]
                )
                let line = try await process.line("a port") { $0.hasPrefix("listening ") }
                url = "http://127.0.0.1:\(line.split(separator: " ")[1])"
            }
        }
    }
}
