internal import JSON
internal import PushCore
internal import PushEvents

private let topics = KafkaTopics()

/// Fuzzes Kafka records. Any bytes are a push that stays the same when it is written and parsed
/// again, or a dead letter whose headers have a bounded length, in time linear in the bytes.
///
/// Headers come first, a line each, then an empty line, and the value; an input that begins with
/// `{` has no headers.
func fuzzRecords(_ bytes: [UInt8]) {
    var record = readRecord(bytes)
    for topic in [topics.pushRequests, topics.pushRC] {
        record.topic = topic
        for now in [Instant(milliseconds: 1_700_000_000_000), .latest] {
            within(bytes.count) {
                do throws(DeadLetterReason) {
                    let event = try PushEvent.decode(record, now: now, topics: topics)
                    judge(event, now)
                } catch {
                    judge(error, record)
                }
            }
        }
    }
}

private func readRecord(_ bytes: [UInt8]) -> IncomingRecord {
    var rest = bytes[...]
    var headers: [RecordHeader] = []
    while !rest.isEmpty, rest.first != UInt8(ascii: "{") {
        let line = rest.prefix { $0 != UInt8(ascii: "\n") }
        rest = rest.dropFirst(line.count + 1)
        if line.isEmpty { break }
        let name = line.prefix { $0 != UInt8(ascii: ":") }
        headers.append(
            RecordHeader(
                String(decoding: name, as: UTF8.self),
                Array(line.dropFirst(name.count + 1))
            )
        )
    }
    return IncomingRecord(
        topic: "push.requests",
        partition: 0,
        offset: 7,
        key: nil,
        value: Array(rest),
        headers: headers
    )
}

/// As long as its input, so that two inputs of a run are never equal by accident.
private let digest: Digest = { bytes in
    var random = Splitmix(seed: bytes)
    return (0..<32).map { _ in UInt8(truncatingIfNeeded: random.next()) }
}

private func judge(_ event: PushEvent, _ now: Instant) {
    let id = event.pushID(digest: digest)
    // An envelope may omit the source, and both may be longer there than in a request.
    guard [event.source, event.eventID].allSatisfy({ (1...256) ~= $0.utf8.count }) else { return }
    let again = PushEvent.encode(
        event.object,
        app: event.app,
        source: event.source,
        eventID: event.eventID,
        topics: topics
    )
    let record = IncomingRecord(
        topic: again.topic,
        partition: 1,
        offset: 8,
        key: again.key,
        value: again.value,
        headers: again.headers
    )
    do throws(DeadLetterReason) {
        let read = try PushEvent.decode(record, now: now)
        require(read.pushID(digest: digest) == id, "written and read it is another push")
    } catch {
        fatalError("what was written is refused: \(error)")
    }
}

private func judge(_ reason: DeadLetterReason, _ record: IncomingRecord) {
    require(reason.detail.utf8.count <= 4096, "a detail of \(reason.detail.utf8.count) bytes")
    for isContentKept in [true, false] {
        let letter = OutgoingRecord.deadLetter(
            record,
            because: reason,
            topics: topics,
            isContentKept: isContentKept
        )
        require(isContentKept || letter.value == nil, "what is left out is there")
    }
}
