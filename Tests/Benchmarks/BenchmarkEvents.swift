internal import EventLoop
internal import Glibc
internal import JSON
internal import Kafka

/// `events APP TOPIC RUN INSTALLATIONS COUNT RATE`: writes push requests to Kafka, each for one of
/// the app's installations, which are numbered from 1, and ends when all are acknowledged. It
/// writes RATE a second, without waiting for earlier ones; with a rate of 0 as fast as Kafka
/// accepts them. SIGTERM ends it early. Prints how many there were, and when the first was handed
/// to librdkafka.
///
/// Each event contains the time at which it was written, for `carillon-bench sink`; with a rate
/// librdkafka must not delay it to fill a batch.
func produceEvents(_ arguments: [String], servers: String?) async throws -> String {
    guard let servers else { throw BenchmarkError("KAFKA_BOOTSTRAP_SERVERS is not set") }
    guard arguments.count == 6, let installations = Int(arguments[3]), installations > 0,
        let count = Int(arguments[4]), count > 0, let rate = Double(arguments[5]), rate >= 0
    else {
        throw BenchmarkError(
            "usage: carillon-bench events APP TOPIC RUN INSTALLATIONS COUNT RATE"
        )
    }
    let loop = try EventLoop(name: "events")
    let configuration = KafkaConfiguration(
        bootstrapServers: servers,
        properties: rate > 0 ? ["linger.ms": "0"] : [:],
        clientID: "bench-events"
    )
    let writer = EventWriter(
        app: arguments[0],
        topic: arguments[1],
        run: arguments[2],
        installations: installations,
        count: count,
        rate: rate,
        producer: try KafkaProducer(configuration, on: loop),
        loop: loop
    )
    try await writer.warmUp()
    await withCheckedContinuation { continuation in
        loop.execute { writer.start { continuation.resume() } }
    }
    await writer.producer.close()
    await loop.stop()
    if let failure = writer.failure { throw BenchmarkError("events were not written: \(failure)") }
    let figures: JSONValue = [
        "written": JSONValue(writer.acknowledged), "first": JSONValue(writer.firstAt),
    ]
    return figures.text
}

/// Confined to its loop until it is done.
private final class EventWriter: @unchecked Sendable {
    let producer: KafkaProducer
    private let loop: EventLoop
    private let topic: String
    private let run: String
    private let installations: Int
    private let rate: Double
    private let head: String
    private var count: Int
    private var handedOver = 0
    private(set) var acknowledged = 0
    private(set) var firstAt = 0
    private(set) var failure: String?
    private var start = ContinuousClock.now
    private var timer: LoopTimer?
    private var signal: SignalWatch?
    private var done: (() -> Void)?

    /// The records of one call of the producer, and the limit of unacknowledged ones without a
    /// rate.
    private static let batch = 500
    private static let outstanding = 32_000
    /// With it the payload is as long as that of the broadcasts, about 400 bytes.
    private static let alert = String(repeating: "x", count: 340)

    init(
        app: String,
        topic: String,
        run: String,
        installations: Int,
        count: Int,
        rate: Double,
        producer: KafkaProducer,
        loop: EventLoop
    ) {
        self.topic = topic
        self.run = run
        self.installations = installations
        self.count = count
        self.rate = rate
        self.producer = producer
        self.loop = loop
        head = "\"app\":\"\(app)\",\"data\":{\"alert\":\"\(Self.alert)\",\"\(EventMark.field)\":\""
    }

    /// Lets a new producer wait for its id and for the topic's partitions, up to a second, which is
    /// not part of Carillon's figures. The record that it sends is a dead letter.
    func warmUp() async throws {
        let record = KafkaOutgoing(
            topic: topic,
            key: nil,
            value: Array("{\"id\":\"warm-up\",\"app\":\"nobody-of-the-bench\",\"data\":{}}".utf8)
        )
        for error in try await producer.send([record]) {
            if let error { throw BenchmarkError("the first record was not written: \(error)") }
        }
    }

    func start(_ done: @escaping () -> Void) {
        self.done = done
        start = .now
        firstAt = wallMicroseconds()
        signal = loop.onSignal(SIGTERM) { [self] in
            count = handedOver
            endWhenDone()
        }
        if rate > 0 {
            let tick = Duration.milliseconds(1)
            timer = loop.schedule(after: tick, every: tick) { [self] in fill() }
        } else {
            fill()
        }
    }

    private func fill() {
        while handedOver < count {
            let room: Int
            if rate > 0 {
                let due = Int((ContinuousClock.now - start) / .seconds(1) * rate)
                room = min(due, count) - handedOver
            } else {
                let waiting = handedOver - acknowledged
                room = waiting > Self.outstanding - Self.batch ? 0 : count - handedOver
            }
            guard room > 0 else { return }
            send(min(room, Self.batch))
        }
    }

    private func send(_ size: Int) {
        let records = (handedOver..<(handedOver + size)).map(record)
        handedOver += size
        Task.immediate(executorPreference: loop) { [self] in
            do {
                for error in try await producer.send(records) {
                    if let error { fail("\(error)") }
                }
            } catch {
                fail("\(error)")
            }
            acknowledged += size
            if rate == 0 { fill() }
            endWhenDone()
        }
    }

    private func fail(_ problem: String) {
        failure = problem
        count = handedOver
    }

    private func endWhenDone() {
        guard acknowledged == count, let done else { return }
        self.done = nil
        timer?.cancel()
        done()
    }

    private func record(_ number: Int) -> KafkaOutgoing {
        let id = "\(run)-\(number)"
        let mark = EventMark(number: number, sentAt: wallMicroseconds())
        // Neighbours in time are not neighbours in the table: 7919 is prime.
        let installation = String(number * 7919 % installations + 1, radix: 16)
        let zeros = String(repeating: "0", count: 24 - installation.utf8.count)
        let value =
            "{\"id\":\"\(id)\",\"installations\":[\"\(zeros)\(installation)\"],"
            + head + mark.text + "\"}}"
        return KafkaOutgoing(topic: topic, key: Array(id.utf8), value: Array(value.utf8))
    }
}
