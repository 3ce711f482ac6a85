package import JSON

/// Kafka as another program sees it: by Debian's kcat, not our own client.
package struct KafkaClient: Sendable {
    package let bootstrapServers: String

    package init(bootstrapServers: String) {
        self.bootstrapServers = bootstrapServers
    }

    /// Writes records whose values are lines, in order, and returns when the broker has them all.
    /// Keys and values must not contain a tab or a newline.
    package func produce(_ keyed: [(key: String, value: String)], to topic: String) async throws {
        let lines = keyed.map { "\($0.key)\t\($0.value)" }.joined(separator: "\n")
        _ = try await run(
            "/usr/bin/kcat",
            ["-P", "-b", bootstrapServers, "-t", topic, "-K", "\t", "-X", "acks=all"],
            input: Array(lines.utf8)
        ).successful("kcat -P")
    }

    /// Writes one record, whose value may be any bytes.
    package func produce(
        key: String? = nil,
        headers: [(name: String, value: String)] = [],
        value: [UInt8],
        to topic: String
    ) async throws {
        var arguments = ["-P", "-b", bootstrapServers, "-t", topic, "-X", "acks=all"]
        // This delimiter is in no value here, so newlines do not split it.
        arguments += ["-D", "\u{1}<end of the value>"]
        if let key { arguments += ["-k", key] }
        for header in headers { arguments += ["-H", "\(header.name)=\(header.value)"] }
        _ = try await run("/usr/bin/kcat", arguments, input: value).successful("kcat -P")
    }

    /// Returns all records of a topic.
    package func records(on topic: String) async throws -> [KafkaRead] {
        try await run(
            "/usr/bin/kcat",
            ["-C", "-q", "-e", "-J", "-o", "beginning", "-b", bootstrapServers, "-t", topic]
        ).successful("kcat -C").split(separator: "\n").map { try KafkaRead(line: String($0)) }
    }

    /// Follows a topic from its beginning; ends with the process.
    package func follow(_ topic: String) async throws -> ChildProcess {
        try await ChildProcess.start(
            "/usr/bin/kcat",
            ["-C", "-q", "-u", "-J", "-o", "beginning", "-b", bootstrapServers, "-t", topic]
        )
    }
}

/// A record in the form of kcat's `-J`.
package struct KafkaRead: Sendable {
    package let partition: Int
    package let offset: Int
    package let key: String?
    package let value: String
    package let headers: [(name: String, value: String)]

    package var json: JSONValue? { try? JSONValue.parse(value) }

    package init(line: String) throws {
        let record = try JSONValue.parse(line)
        guard let partition = record["partition"]?.integer, let offset = record["offset"]?.integer
        else { throw TestFailure("not a record of kcat: \(line.prefix(200))") }
        self.partition = partition
        self.offset = offset
        key = record["key"]?.string
        value = record["payload"]?.string ?? ""
        let texts = record["headers"]?.array?.map { $0.string ?? "" } ?? []
        headers = stride(from: 0, to: texts.count - 1, by: 2).map { (texts[$0], texts[$0 + 1]) }
    }

    package func header(_ name: String) -> String? {
        headers.first { $0.name == name }?.value
    }
}
