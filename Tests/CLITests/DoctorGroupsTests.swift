import EventLoop
import Kafka
import PushCore
import PushEvents
import Settings
import Testing

@testable import CLI

/// The doctor's requests about consumer groups, against librdkafka's mock cluster.
@Suite("The doctor's check of consumer groups", .timeLimit(.minutes(1)))
struct DoctorGroupsTests {
    private func withDoctor(
        groups: [ConsumerRole: String] = [:],
        _ body: (inout Doctor, MockKafkaCluster, KafkaCluster) async throws -> Void
    ) async throws {
        let mock = try MockKafkaCluster()
        defer { mock.close() }
        let topics = KafkaTopics(prefix: "p.")
        for name in topics.all { try mock.createTopic(name, partitions: 2) }
        let loop = try EventLoop(name: "doctor-test")
        let context = CommandContext(
            reader: ConfigurationReader([
                "KAFKA_BOOTSTRAP_SERVERS": mock.bootstrapServers, "KAFKA_TOPIC_PREFIX": "p.",
            ]),
            loop: loop
        )
        do {
            let cluster = try await KafkaAdmin.describe(try context.kafka(), on: loop)
            var doctor = Doctor(context: context, groups: groups)
            try await body(&doctor, mock, cluster)
            await loop.stop()
        } catch {
            await loop.stop()
            throw error
        }
    }

    @Test("The doctor checks each topic that a service reads, under the name of its group")
    func each() async throws {
        try await withDoctor(groups: [.configWatcher: "own"]) { doctor, _, cluster in
            try await doctor.examineGroups(cluster)
            #expect(
                doctor.findings.map(\.name) == [
                    "group carillon-dispatcher p.push.requests",
                    "group own p.config.published", "group carillon-dispatcher-config p.PUSH_RC",
                    "group carillon-dispatcher-sync p.dataset.changes",
                ]
                    + BuiltInIngestType.allCases.map {
                        "group carillon-ingest p.ingest.\($0.rawValue)"
                    }
                    .sorted()
            )
            #expect(doctor.findings.allSatisfy { $0.status == .ok })
            #expect(doctor.lags.allSatisfy { $0.partitions == 2 })
        }
    }

    @Test(
        "The sink reads every topic with its prefix, including those of declared types, and no other"
    )
    func ingest() throws {
        let names = [
            "p.ingest.Weather", "p.ingestWeather", "q.ingest.Weather", "p.ingest.SegmentTrack",
        ]
        let read = names.filter { ConsumerRole.ingest.reads($0, of: KafkaTopics(prefix: "p.")) }
        #expect(read == ["p.ingest.Weather", "p.ingest.SegmentTrack"])
    }

    @Test("One KAFKA_GROUP_ID for all services gives groups that can work together")
    func shared() {
        let groups = ConsumerRole.allCases.map { $0.group(under: "shop") }
        #expect(groups == ["shop", "shop", "shop-config", "shop-sync", "shop-ingest"])
        #expect(ConsumerRole.ingest.group(under: "my-ingest") == "my-ingest")
        #expect(ConsumerRole.ingest.formerGroup(under: "my-ingest") == nil)
        #expect(ConsumerRole.ingest.formerGroup(under: "shop") == "shop")
        #expect(ConsumerRole.pushConfig.formerGroup(under: "shop") == "shop")
        #expect(ConsumerRole.allCases.map(\.defaultGroup).last == "carillon-ingest")
    }

    @Test("A missing topic is skipped")
    func missing() async throws {
        try await withDoctor { doctor, _, cluster in
            var cluster = cluster
            cluster.topics.removeAll { $0.name != "p.push.requests" }
            try await doctor.examineGroups(cluster)
            #expect(doctor.lags.map(\.kafkaTopic) == ["p.push.requests"])
        }
    }

    @Test("A denied request is a warning, and the other groups are still checked")
    func refused() async throws {
        try await withDoctor { doctor, mock, cluster in
            mock.refuse(.offsetFetch, with: .groupAuthorizationFailed)
            try await doctor.examineGroups(cluster)
            let first = try #require(doctor.findings.first)
            #expect(first.name == "group carillon-dispatcher")
            #expect(first.status == .warning)
            #expect(first.detail.contains("GROUP_AUTHORIZATION_FAILED"))
            #expect(
                doctor.lags.map(\.reader) == [.configWatcher, .pushConfig, .pushSync]
                    + BuiltInIngestType.allCases.map { _ in .ingest }
            )
        }
    }

    @Test("A cluster that stops answering is a failure within the time limit")
    func silent() async throws {
        try await withDoctor { doctor, mock, cluster in
            try mock.setBroker(isUp: false)
            let start = ContinuousClock.now
            try await doctor.examineGroups(cluster, timeout: .milliseconds(500))
            #expect(.now - start < .seconds(10))
            #expect(doctor.findings.map(\.status) == ConsumerRole.allCases.map { _ in .failed })
            #expect(doctor.hasFailures)
            #expect(doctor.lags.isEmpty)
        }
    }
}
