internal import JSON
internal import JSONSchema

/// Fuzzes schemas and values. Any schema is parsed or refused, and any value accepted or refused by
/// it, in bounded time; the result is reproducible, and every schema is compatible with itself.
///
/// The input is a schema in one line, then a value.
func fuzzSchemas(_ bytes: [UInt8]) {
    let parts = bytes.split(separator: UInt8(ascii: "\n"), maxSplits: 1)
    guard let first = parts.first, let document = try? JSONValue.parse(Array(first)) else { return }
    let value = (try? JSONValue.parse(Array(parts.count > 1 ? parts[1] : []))) ?? document
    let checker = SchemaChecker()
    let time = processorTime {
        guard let schema = try? ValueSchema(document) else { return }
        let violation = schema.check(value, by: checker)
        require(violation == schema.check(value, by: checker), "a check says two things")
        require((violation?.pointer.utf8.count ?? 0) <= 1024, "a pointer is too long")
        guard let type = try? ObjectSchema(Array(first), type: "T") else { return }
        require(violation == type.check(value, by: checker), "a type is checked otherwise")
        require(type.narrowing(in: type) == nil, "a schema takes less than itself")
    }
    require(time < checkTime, "a schema and its value take \(time)")
}

/// The maximum duration of one check's budgets, with a slow machine and the sanitizers allowed for.
private let checkTime = Duration.seconds(4)
