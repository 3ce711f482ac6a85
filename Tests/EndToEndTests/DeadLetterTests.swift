import Cryptography
import HTTPServer
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Commands of dead letters", .serialized, .timeLimit(.minutes(2)))
    struct DeadLetterTests {
        private static let item = #"{"type":"track","userId":"u"}"#

        /// Runs the body with an operator and two dead letters: a push request, and an item that
        /// ingest refused.
        private func withLetters(_ body: (Operator, KafkaClient) async throws -> Void) async throws
        {
            try await withOperator { carillon in
                try await carillon.says("migrate")
                let kafka = KafkaClient(bootstrapServers: carillon.bootstrapServers)
                let why = [("error.reason", "invalid_request"), ("error.detail", "why")]
                try await kafka.produce(
                    key: "a",
                    headers: [("kept", "yes")] + why + [
                        ("source.topic", "push.requests"), ("source.partition", "1"),
                        ("source.offset", "7"),
                    ],
                    value: Array(#"{"app":"shop"}"#.utf8),
                    to: "push.dead-letters"
                )
                try await kafka.produce(
                    key: "b",
                    headers: [("app", "shop")] + why + [
                        ("source.topic", "http:/v1/batch"), ("source.partition", "0"),
                        ("source.offset", "0"),
                    ],
                    value: Array(Self.item.utf8),
                    to: "push.dead-letters"
                )
                try await body(carillon, kafka)
            }
        }

        /// Returns the id of the dead letter from this source.
        private func id(of source: String, _ carillon: Operator) async throws -> String {
            let lines = try await carillon.says("dead-letters", "list", "--json")
                .split(separator: "\n").map { try JSONValue.parse(String($0)) }
            let found = lines.first { $0["source"]?.string == source }?["id"]?.string
            return try #require(found)
        }

        @Test("Dead letters are listed, shown, and replayed to their source")
        func lifetime() async throws {
            try await withLetters { carillon, kafka in
                let created = try await carillon.json("app", "create", "shop")
                let listed = try await carillon.says("dead-letters", "list")
                for part in ["push.requests 1/7", "http:/v1/batch", "invalid_request", "shop"] {
                    #expect(listed.contains(part), "\(part)")
                }
                #expect(
                    try await carillon.says("dead-letters", "list", "--reason", "x").contains("no")
                )
                let (record, item) = (
                    try await id(of: "push.requests", carillon),
                    try await id(of: "http:/v1/batch", carillon)
                )
                let shown = try await carillon.json("dead-letters", "show", item)
                #expect(shown["value"]?.string == Self.item && shown["key"] == "b")

                let would = try await carillon.says("dead-letters", "replay", "--all", "--dry-run")
                #expect(would.contains("would go to push.requests"))
                #expect(would.contains("/v1/batch as shop"))
                #expect(try await kafka.records(on: "push.requests").isEmpty)

                try await carillon.says("dead-letters", "replay", record)
                let back = try #require(try await kafka.records(on: "push.requests").first)
                #expect(back.key == "a" && back.value == #"{"app":"shop"}"#)
                #expect(back.header("kept") == "yes" && back.header("error.reason") == nil)

                let away = try await carillon.with(["INGEST_URL": "http://127.0.0.1:1"])
                    .callAsFunction(["dead-letters", "replay", item])
                #expect(away.exit == .status(1) && away.output.contains("does not answer"))
                try await withLocalServer { _ in
                    HTTPServerResponse.json(["success": true])
                } _: { server, _ in
                    let carillon = carillon.with([
                        "INGEST_URL": server.origin, "PROVIDER_CA_FILE": server.caFile,
                    ])
                    try await carillon.says("dead-letters", "replay", item)
                    let request = try #require(server.received.first)
                    #expect(request.path == "/v1/batch")
                    #expect(request.body == Array(#"{"batch":[\#(Self.item)]}"#.utf8))
                    let key = try #require(created["appKey"]?.string)
                    let basic = "Basic " + Base64.encode(Array("\(key):".utf8))
                    #expect(request.headers["authorization"] == basic)
                }
                let audited = try await carillon.says("audit", "shop", "--json")
                let replays = audited.split(separator: "\n").filter {
                    $0.contains("dead-letters replay")
                }
                #expect(replays.count == 2)
            }
        }

        @Test("A dead letter that cannot be replayed is refused with the reason")
        func refusals() async throws {
            try await withLetters { carillon, _ in
                for words in [
                    ["replay"], ["replay", "x"], ["show", "1"], ["replay", "0/1", "--all"],
                ] {
                    let answer = try await carillon(["dead-letters"] + words)
                    #expect(answer.exit == .status(64), "\(words)")
                }
                #expect(
                    try await carillon.refuses("dead-letters", "show", "0/999")
                        .contains("dead letter 0/999 not found")
                )
                let item = try await id(of: "http:/v1/batch", carillon)
                #expect(
                    try await carillon.refuses("dead-letters", "replay", item)
                        .contains("there is no app shop")
                )
            }
        }
    }
}
