internal import FoundationEssentials
internal import JSON

/// Measures parsing one record to a value tree, and writing that tree; reading five of its fields
/// in place, and from the tree; and reading a few numbers of a text that is mostly skipped, both
/// ways.
func measureJSON(file: String) throws -> String {
    let bytes = try [UInt8](Data(contentsOf: URL(filePath: file)))
    let value = try JSONValue.parse(bytes)
    var sum = 0
    let reading = try medianNanoseconds {
        if case .object(let object) = try JSONValue.parse(bytes) { sum &+= object.count }
    }
    let writing = medianNanoseconds { sum &+= value.bytes.count }
    let statistics = statisticsText()
    func compared(
        _ inPlace: ([UInt8]) throws -> Int,
        _ ofTree: ([UInt8]) throws -> Int,
        _ bytes: [UInt8]
    ) throws -> JSONValue {
        [
            "in_place_ns": .double(try medianNanoseconds { sum &+= try inPlace(bytes) }),
            "tree_ns": .double(try medianNanoseconds { sum &+= try ofTree(bytes) }),
        ]
    }
    let fields = try compared(fieldsInPlace, fieldsOfTree, bytes)
    let offsets = try compared(offsetsInPlace, offsetsOfTree, statistics)
    guard try fieldsInPlace(of: bytes) == fieldsOfTree(of: bytes),
        try offsetsInPlace(of: statistics) == offsetsOfTree(of: statistics)
    else { throw BenchmarkError("reader and tree read something else") }
    guard sum != 0 else { throw BenchmarkError("\(file) is no object") }
    let figures: JSONValue = [
        "bytes": JSONValue(bytes.count), "read_ns": .double(reading), "write_ns": .double(writing),
        "fields": fields, "offsets": offsets,
    ]
    return figures.text
}

private func fieldsInPlace(of bytes: [UInt8]) throws -> Int {
    try JSONReader.read(bytes) { reader throws(JSONError) in
        var sum = 0
        try reader.object { key, reader throws(JSONError) in
            if key.isEqual(to: "id") || key.isEqual(to: "source") || key.isEqual(to: "app") {
                sum &+= try reader.string()?.utf8.count ?? 0
            } else if key.isEqual(to: "expiration_interval") || key.isEqual(to: "attempts") {
                sum &+= try reader.integer() ?? 0
            }
        }
        return sum
    }
}

private func fieldsOfTree(of bytes: [UInt8]) throws -> Int {
    let tree = try JSONValue.parse(bytes)
    var sum = 0
    for key in ["id", "source", "app"] { sum &+= tree[key]?.string?.utf8.count ?? 0 }
    for key in ["expiration_interval", "attempts"] { sum &+= tree[key]?.integer ?? 0 }
    return sum
}

/// Makes a text like librdkafka's statistics: a hundred partitions of forty numbers each.
private func statisticsText() -> [UInt8] {
    var partitions = JSONObject()
    for partition in 0..<100 {
        var members: JSONObject = ["partition": JSONValue(partition), "fetch_state": "active"]
        for number in 0..<38 { members["counter_\(number)"] = JSONValue(number * 1_234_567) }
        members["hi_offset"] = JSONValue(partition * 1000)
        partitions["\(partition)"] = .object(members)
    }
    return JSONValue.object(["topics": ["t": ["partitions": .object(partitions)]]]).bytes
}

private func offsetsInPlace(of bytes: [UInt8]) throws -> Int {
    try JSONReader.read(bytes) { reader throws(JSONError) in
        var sum = 0
        try reader.object { _, topics throws(JSONError) in
            try topics.object { _, topic throws(JSONError) in
                try topic.object { _, partitions throws(JSONError) in
                    try partitions.object { _, partition throws(JSONError) in
                        try partition.object { key, reader throws(JSONError) in
                            guard key.isEqual(to: "hi_offset") else { return }
                            sum &+= try reader.integer() ?? 0
                        }
                    }
                }
            }
        }
        return sum
    }
}

private func offsetsOfTree(of bytes: [UInt8]) throws -> Int {
    var sum = 0
    for (_, topic) in try JSONValue.parse(bytes)["topics"]?.object ?? [:] {
        for (_, partition) in topic["partitions"]?.object ?? [:] {
            sum &+= partition["hi_offset"]?.integer ?? 0
        }
    }
    return sum
}
