internal import Foundation
internal import JSON

/// Requests of a file, one a line: its name, `Authorization` (`-` for none), `METHOD TARGET`, and
/// optionally a body of JSON, separated by tabs.
private struct RequestFile {
    struct Line {
        let name: String
        let bytes: [UInt8]
    }

    var lines: [Line] = []

    init(_ path: String) throws {
        let text = try String(contentsOfFile: path, encoding: .utf8)
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: "\t", omittingEmptySubsequences: false)
            guard parts.count == 3 || parts.count == 4 else {
                throw BenchmarkError("\(path) has a line of \(parts.count) parts")
            }
            let body = parts.count == 4 ? parts[3] : ""
            let proof = parts[1] == "-" ? "" : "Authorization: \(parts[1])\r\n"
            let head = "\(parts[2]) HTTP/1.1\r\nHost: 127.0.0.1\r\n\(proof)"
            let rest =
                body.isEmpty
                ? "\r\n"
                : """
                Content-Type: application/json\r
                Content-Length: \(body.utf8.count)\r
                \r
                \(body)
                """
            lines.append(Line(name: String(parts[0]), bytes: Array((head + rest).utf8)))
        }
        guard !lines.isEmpty else { throw BenchmarkError("\(path) is empty") }
    }
}

/// `requests PORT FILE any|each CONNECTIONS SECONDS [RATE]`: CONNECTIONS clients send requests of
/// the file to the service at that port of this machine, for SECONDS: `any` at random, or `each`
/// once, in order, until the end of the file. Prints how many a second were answered, and how long
/// one took, as `registry` does. With a rate this many are sent a second.
func measureRequests(_ arguments: [String]) throws -> String {
    guard arguments.count == 5 || arguments.count == 6, let port = UInt16(arguments[0]),
        ["any", "each"].contains(arguments[2]), let connections = Int(arguments[3]),
        (1...1000).contains(connections), let seconds = Double(arguments[4]), seconds > 0
    else {
        throw BenchmarkError(
            "usage: carillon-bench requests PORT FILE any|each CONNECTIONS SECONDS [RATE]"
        )
    }
    var rate: Double?
    if arguments.count == 6 {
        rate = Double(arguments[5])
        guard let rate, rate > 0 else { throw BenchmarkError("a rate is a number above 0") }
    }
    let lines = try RequestFile(arguments[1]).lines
    var clients: [LoadClient] = []
    defer { for client in clients { client.close() } }
    for _ in 0..<connections { clients.append(try LoadClient(port: port)) }
    guard arguments[2] == "each" else {
        let some = { lines[Int.random(in: lines.indices)].bytes }
        // These create connections and plans, and fill caches.
        _ = try ask(clients, for: min(1, seconds / 4), rate: rate, some)
        return try ask(clients, for: seconds, rate: rate, some).figures
    }
    var index = 0
    return try ask(clients, for: seconds, rate: rate) {
        guard index < lines.count else { return nil }
        index += 1
        return lines[index - 1].bytes
    }.figures
}

/// `turns PORT FILE STATUS COUNT`: one client sends the requests of the file COUNT times for each
/// name, the names in turns and every turn in another order, over one connection. Each response
/// must have that status. Prints the median of each name in microseconds, the ratio of the slowest
/// to the fastest, and how many different responses there were apart from their date.
func measureTurns(_ arguments: [String]) throws -> String {
    guard arguments.count == 4, let port = UInt16(arguments[0]), let count = Int(arguments[3]),
        count > 0
    else { throw BenchmarkError("usage: carillon-bench turns PORT FILE STATUS COUNT") }
    let lines = try RequestFile(arguments[1]).lines
    let client = try LoadClient(port: port, expecting: arguments[2])
    defer { client.close() }
    var names = Array(Set(lines.map(\.name))).sorted()
    let requests = Dictionary(grouping: lines, by: \.name).mapValues { $0.map(\.bytes) }
    var times: [String: [Double]] = [:]
    var answers: Set<[UInt8]> = []
    // These create connections and plans, and fill caches.
    let first = min(1000, count / 10)
    for turn in 0..<first + count {
        names.shuffle()
        for name in names {
            guard let kept = requests[name] else { continue }
            try client.send(kept[turn % kept.count])
            var took: Double?
            while took == nil { took = try client.receive() }
            guard turn >= first, let took else { continue }
            times[name, default: []].append(took * 1000)
            answers.insert(undated(client.answer))
        }
    }
    let medians = times.mapValues { percentile($0.sorted(), 0.5) ?? 0 }
    guard let least = medians.values.min(), let most = medians.values.max(), least > 0 else {
        throw BenchmarkError("nothing was measured")
    }
    let figures: JSONValue = [
        "spread": .double(most / least), "answers": JSONValue(answers.count),
        "medians": .object(
            JSONObject(medians.sorted { $0.key < $1.key }.map { ($0.key, .double($0.value)) })
        ),
    ]
    return figures.text
}

/// Returns a response without its line `Date`.
private func undated(_ answer: [UInt8]) -> [UInt8] {
    let lines = answer.split(separator: 10, omittingEmptySubsequences: false)
    let kept = lines.filter {
        !String(decoding: $0.prefix(5), as: UTF8.self).lowercased().hasPrefix("date:")
    }
    return Array(kept.joined(separator: [10]))
}
