import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Access rights of ingest",
        .runningIngest(["LOG_LEVEL": "debug"]),
        .serialized,
        needsBroker,
        .timeLimit(.minutes(5))
    )
    struct IngestRightsTests {
        @Test("Every route answers every credential as rights-ingest.md says")
        func rights() async throws {
            let bench = try await IngestBench()
            let stranger = try await IngestBench(declares: nil)
            let (app, other) = (bench.app, stranger.app)
            let columns: [(String, [String: String])] = [
                ("nothing", [:]),
                ("the app key (Basic, as user)", IngestBench.basic(app.appKey)),
                ("the app key (Basic, behind the app's id)", IngestBench.basic(app.id, app.appKey)),
                ("the app key (`X-LC-Key`)", app.clientHeaders),
                ("the app key (`apiKey`)", ["apiKey": app.appKey]),
                ("the master key (`X-LC-Key`)", app.masterHeaders),
                ("the master key (Basic, as user)", IngestBench.basic(app.masterKey)),
                ("a wrong key (Basic, as user)", IngestBench.basic("wrong")),
                ("a wrong key (`X-LC-Key`)", ["X-LC-Id": app.id, "X-LC-Key": "wrong"]),
                ("the app key as a bearer's", ["Authorization": "Bearer \(app.appKey)"]),
                ("another app's key (Basic, as user)", IngestBench.basic(other.appKey)),
                ("another app's key (`X-LC-Key`)", other.clientHeaders),
                ("another app's key (`apiKey`)", ["apiKey": other.appKey]),
                (
                    "another app's key under this app's id",
                    ["X-LC-Id": app.id, "X-LC-Key": other.appKey]
                ),
                ("another app's master key", other.masterHeaders),
            ]
            var table = RightsTable(
                columns.map {
                    RightsTable.Credential(name: $0.0, about: $0.0, headers: $0.1)
                },
                head: Self.head
            )
            for action in RightsTable.routes(of: bench.service)
            where !action.contains(" //") {
                let parts = action.split(separator: " ", maxSplits: 1).map(String.init)
                var cells: [String] = []
                for credential in table.credentials {
                    cells.append(
                        try await ask(bench, parts[0], parts[1], credential.headers)
                    )
                }
                table.add(action, cells)
            }
            try table.compare(with: "rights-ingest.md")
            // Objects of other callers are not among this app's: accepted ones belong to their own
            // app.
            let rows = try await bench.rows("WeatherSensor", "\"deviceId\"", count: 1)
            #expect(rows.allSatisfy { $0 == "WX1278UIT" })
        }

        /// Sends a request that is valid for an authorized caller.
        private func ask(
            _ bench: IngestBench,
            _ method: String,
            _ pattern: String,
            _ headers: [String: String]
        ) async throws -> String {
            let path = pattern.replacing(":type", with: "WeatherSensor")
                .replacing(":appId", with: bench.app.id)
            let reading = IngestBench.reading(IngestBench.makeID())
            var type = "application/json"
            var body: JSONValue = reading
            if path.hasPrefix("/app/") {
                body = [
                    "dataSource": "a", "database": "b", "collection": "WeatherSensor",
                    "document": reading, "documents": [reading],
                ]
            } else if path == "/events" {
                type = "application/cloudevents+json"
                body = [
                    "specversion": "1.0", "type": "WeatherSensor", "source": "/x",
                    "id": "1", "data": reading,
                ]
            } else if ["/v1/batch", "/v1/b", "/v1/import"].contains(path) {
                body = ["batch": [["type": "track", "event": "x", "userId": "ann"]]]
            } else if !path.hasPrefix("/v1/ingest/") {
                body = ["event": "x", "userId": "ann"]
            }
            let answer = try await http(
                method,
                bench.service.url + path,
                headers: method == "POST"
                    ? headers.merging(["Content-Type": type]) { $1 } : headers,
                bytes: method == "POST" ? body.bytes : []
            )
            return String(answer.status)
        }

        private static let head = """
            # Who may send to ingest

            Made by the test `EndToEndTests.IngestRightsTests`, which asks the built service of ingest for
            every route that it has, by every way to say who calls, and compares the answers with this
            file. With `CARILLON_RENEW_RIGHTS=1` it writes the file again: look at what changes.

            A cell is the answer's status. What is sent is right, and of a type that the app has and the
            other app has not. The other app may send what every app may: Segment's calls, which become
            its own objects. 405 is an action of Atlas that reads, changes or deletes.


            """
    }
}
