import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The programs are in `Java/`, one for each client; they check what the client reads, and the
    /// tests check what the devices got.
    @Suite(
        "The vendors' own Java clients, unchanged",
        .runningStackWithTLS,
        .serialized,
        .enabled(if: TestEnvironment.javaClients != nil, "JAVA_CLIENTS is not set"),
        .timeLimit(.minutes(5))
    )
    struct JavaClientTests {
        @Test("LeanCloud: installations and queries work, and pushes reach their devices once")
        func leancloud() async throws {
            let bench = try await Bench()
            let answer = try await runJava(
                "LeanCloudClient",
                of: .leancloud,
                environment: [
                    "REGISTRATION_URL": bench.registration, "APP_ID": bench.app.id,
                    "APP_KEY": bench.app.appKey, "MASTER_KEY": bench.app.masterKey,
                    "APNS_TOPIC": bench.app.bundleID,
                ]
            )
            try answer.expectChecks("LeanCloud")
            let devices = answer.lines("heard")
            #expect(devices.count == 3)
            for words in devices {
                let texts = words.dropFirst().compactMap { Data(base64Encoded: $0) }
                    .map { String(decoding: $0, as: UTF8.self) }
                let got = try await bench.simulator.waitFor(texts.count, for: words[0])
                #expect(got.map(\.alert).sorted() == texts.sorted())
            }
        }

        @Test(
            "Amazon Cognito Sync, by both SDKs of AWS: all operations, and one push for a change",
            arguments: [("CognitoV1", JavaClient.cognitoV1), ("CognitoV2", .cognitoV2)]
        )
        func cognito(program: String, client: JavaClient) async throws {
            let bench = try await CognitoBench()
            let answer = try await runJava(program, of: client, environment: bench.environment)
            try answer.expectChecks(program)
            try await bench.expectTold(answer)
        }

        @Test("CloudEvents: push requests of its Kafka binding, in both modes, are sent")
        func cloudEvents() async throws {
            let push = try await KafkaPush()
            let answer = try await runJava(
                "CloudEventsClient",
                of: .cloudevents,
                ["Kafka"],
                environment: push.environment
            )
            try answer.expectChecks("CloudEvents")
            try await push.expectSent()
        }
    }
}

/// A push request to one phone, which a program writes to Kafka in both modes of CloudEvents.
struct KafkaPush: Sendable {
    let bench: Bench
    let token = makeAPNsToken()
    let event = TestEnvironment.unique("event-")

    init() async throws {
        bench = try await Bench()
        _ = try await bench.registerPhone(token: token, channels: ["Mets"])
    }

    var environment: [String: String] {
        let request: JSONValue = [
            "app": .string(bench.app.id), "channels": ["Mets"], "data": ["alert": .string(event)],
        ]
        return [
            "KAFKA": bench.stack.environment["KAFKA_BOOTSTRAP_SERVERS"] ?? "",
            "TOPIC": bench.stack.topic("push.requests"), "EVENT": event, "REQUEST": request.text,
        ]
    }

    /// Expects that each of the two is a push of its own, and that the phone got both.
    func expectSent() async throws {
        for mode in ["binary", "structured"] {
            let push = try await bench.stack.finishedPush(event: "\(mode)-\(event)")
            #expect(push["delivered"]?.integer == 1)
        }
        let got = try await bench.simulator.waitFor(2, for: token)
        #expect(got.map(\.alert) == [event, event])
    }
}

extension CognitoBench {
    /// Expects a silent push of the dataset's changes for each device that the program names. There
    /// are two changes, and one push if both come within the window.
    func expectTold(_ answer: ProgramAnswer) async throws {
        let tokens = answer.lines("told").compactMap(\.first)
        #expect(tokens.count == 1)
        for token in tokens {
            let got = try await bench.simulator.waitFor(1, for: token)
            #expect((1...2).contains(got.count) && got.allSatisfy { $0.alert.isEmpty })
        }
    }
}

extension SimulatorControl.Received {
    /// The text of APNs' alert.
    var alert: String {
        body["aps"]?["alert"]?.string ?? body["aps"]?["alert"]?["body"]?.string ?? ""
    }
}
