internal import EventLoop
internal import Kafka

/// Runs one round of the Kafka module, from the start of a process to its end, which `deploy/bench`
/// times: this many records of 300 bytes written and acknowledged, or read as the only member of a
/// group. Or prepares the same for kcat: a topic, and the records as lines.
func measureKafka(_ arguments: [String], servers: String?) async throws -> String {
    if arguments.count == 2, arguments[0] == "lines", let count = Int(arguments[1]) {
        return repeatElement(line, count: count).joined(separator: "\n")
    }
    guard let servers else { throw BenchmarkError("KAFKA_BOOTSTRAP_SERVERS is not set") }
    guard arguments.count >= 3, let count = Int(arguments[2]), count > 0 else { throw usage }
    var properties: [String: String] = [:]
    for argument in arguments.dropFirst(3) {
        let parts = argument.split(separator: "=", maxSplits: 1)
        guard parts.count == 2 else { throw usage }
        properties[String(parts[0])] = String(parts[1])
    }
    let configuration = KafkaConfiguration(
        bootstrapServers: servers,
        properties: properties,
        clientID: "bench"
    )
    let loop = try EventLoop(name: "bench")
    let topic = arguments[1]
    let work: @Sendable () async throws -> Void
    switch arguments[0] {
    case "topic":
        work = {
            _ = try await KafkaAdmin.ensureTopics([(topic, count)], configuration, on: loop)
        }
    case "produce": work = { try await produce(count, to: topic, configuration, on: loop) }
    case "consume": work = { try await consume(count, of: topic, configuration, on: loop) }
    default: throw usage
    }
    let outcome = await Task(executorPreference: loop) { try await work() }.result
    await loop.stop()
    try outcome.get()
    return "{}"
}

private let usage = BenchmarkError(
    "usage: carillon-bench kafka produce TOPIC COUNT | consume TOPIC COUNT [PROPERTY=VALUE…]"
        + " | topic NAME PARTITIONS | lines COUNT"
)

/// 300 bytes, different in neighbouring records: with the missing newline, a line of kcat's input.
private let line = String(
    (0..<300).map { Character(UnicodeScalar(UInt8(ascii: "a") + UInt8($0 % 26))) }
)

/// Writes batches of 500 by so many callers that the producer's own bound is the limit.
private func produce(
    _ count: Int,
    to topic: String,
    _ configuration: KafkaConfiguration,
    on loop: EventLoop
) async throws {
    let producer = try KafkaProducer(configuration, on: loop)
    let value = Array(line.utf8)
    let batch = 500
    let callers = 64
    try await withThrowingTaskGroup { group in
        for caller in 0..<callers {
            group.addTask(executorPreference: loop) {
                for start in stride(from: caller * batch, to: count, by: callers * batch) {
                    let records = (start..<min(start + batch, count)).map { _ in
                        KafkaOutgoing(topic: topic, key: nil, value: value)
                    }
                    for error in try await producer.send(records) { if let error { throw error } }
                }
            }
        }
        try await group.waitForAll()
    }
    await producer.close()
}

/// Reads every record, and finishes every batch, so that its offsets are committed too.
private func consume(
    _ count: Int,
    of topic: String,
    _ configuration: KafkaConfiguration,
    on loop: EventLoop
) async throws {
    let consumer = try KafkaConsumer(
        configuration,
        group: "bench-\(UInt64.random(in: .min ... .max))",
        topics: [topic],
        on: loop
    )
    let running = Task(executorPreference: loop) { try await consumer.run() }
    var taken = 0
    while taken < count, let batch = try await consumer.next() {
        if batch.records.contains(where: { $0.value?.count != 300 }) {
            throw BenchmarkError("the records are not those that were written")
        }
        taken += batch.records.count
        await consumer.finished(batch)
    }
    running.cancel()
    try await running.value
    guard taken == count else { throw BenchmarkError("\(taken) records of \(count)") }
}
