import EventLoop
import Testing

@testable import Kafka

@Suite("Kafka configuration", .timeLimit(.minutes(1)))
struct KafkaConfigurationTests {
    private func error(_ properties: [String: String]) async throws -> KafkaError? {
        try await withLoop { loop in
            do {
                _ = try KafkaConsumer(
                    KafkaConfiguration(bootstrapServers: "127.0.0.1:1", properties: properties),
                    group: "g",
                    topics: ["t"],
                    on: loop
                )
                return nil
            } catch let error as KafkaError {
                return error
            }
        }
    }

    @Test(
        "An invalid property is refused with its name before anything runs",
        arguments: [
            ("no.such.property", "1"), ("session.timeout.ms", "5999"),
            ("heartbeat.interval.ms", "soon"), ("enable.auto.offset.store", "true"),
            ("partition.assignment.strategy", "range"), ("enable.idempotence", "false"),
        ]
    )
    func refused(name: String, value: String) async throws {
        let error = try #require(try await error([name: value]))
        #expect(error.detail.hasPrefix(name))
        #expect(error.description.contains(name))
        #expect(error.name == "_INVALID_ARG")
        #expect(!error.isRetryable)
        #expect(!error.debugDescription.contains("soon"))
    }

    @Test("Properties that contradict each other are also refused at the start")
    func combination() async throws {
        let error = try await error(["security.protocol": "ssl", "ssl.ca.location": "/nowhere.pem"])
        #expect(error?.name == "_INVALID_ARG")
    }

    @Test("An operator's property overrides our default")
    func override() async throws {
        let configuration = KafkaConfiguration(
            bootstrapServers: "127.0.0.1:1",
            properties: ["linger.ms": "42"]
        )
        let settings = try configuration.settings(for: .producer(deliveryTimeoutMilliseconds: 1))
        #expect(settings.last { $0.name == "linger.ms" }?.value == "42")
        #expect(settings.last { $0.name == "enable.idempotence" }?.value == "true")
    }

    @Test("Statistics report the batches of a producer for each topic that has any")
    func batches() {
        let json = """
            {"topics": {"t": {"batchsize": {"cnt": 9, "sum": 4000},
                              "batchcnt": {"min": 1, "max": 500, "avg": 83, "sum": 250, "cnt": 3}},
                        "idle": {"batchcnt": {"avg": 0, "sum": 0, "cnt": 0}}}}
            """
        #expect(
            KafkaStatistics(Array(json.utf8)).batches == ["t": .init(count: 3, records: 250)]
        )
    }

    @Test("Statistics report partition ends, committed offsets and whether a broker is connected")
    func statistics() {
        let json = """
            {"brokers": {"a": {"state": "DOWN"}, "b": {"state": "UP"}},
             "topics": {"t": {"partitions": {
                 "0": {"ls_offset": 30, "hi_offset": 31, "committed_offset": -1001},
                 "1": {"ls_offset": -1001, "hi_offset": 7, "committed_offset": 4},
                 "2": {"ls_offset": -1001, "hi_offset": -1001, "committed_offset": 4},
                 "-1": {"ls_offset": 0, "hi_offset": 0, "committed_offset": 0}}}}}
            """
        let statistics = KafkaStatistics(Array(json.utf8))
        #expect(statistics.isBrokerUp)
        let expected: [TopicPartition: KafkaStatistics.Partition] = [
            TopicPartition(topic: "t", partition: 0): .init(end: 30),
            TopicPartition(topic: "t", partition: 1): .init(end: 7, committed: 4),
        ]
        #expect(statistics.partitions == expected)
        #expect(KafkaStatistics(Array("{".utf8)).isBrokerUp == false)
    }
}
