internal import JSON
internal import RealmSync

/// Whatever a client sends, a Realm connection and the decoder of changesets do not end the process,
/// take bounded time, and never send a message that a client punishes.
///
/// The first byte chooses between a changeset, and a dialogue of messages with two bytes of length
/// each.
func fuzzRealm(_ bytes: [UInt8]) {
    guard let kind = bytes.first else { return }
    let rest = bytes.dropFirst()
    let time = processorTime {
        if kind & 1 == 0 { decodeChangeset(rest) } else { converse(rest) }
    }
    require(time < longest, "\(bytes.count) bytes take \(time)")
}

private let longest = Duration.seconds(1)

private func decodeChangeset(_ bytes: ArraySlice<UInt8>) {
    let changeset = RealmChangeset(version: 1, serverVersion: 0, bytes: bytes)
    var decoding = RealmDecoding(changeset) { $0.joined(separator: "/") }
    var found: RealmObjects?
    do throws(RealmChangesetFault) {
        while found == nil { found = try decoding.step() }
    } catch {
        return
    }
    guard var objects = found else { return }
    for index in 0..<objects.count {
        guard let object = objects.object(at: index) else { continue }
        let text = JSONValue.object(object.document).bytes
        // A path has at most 32 elements below its field.
        let again = try? JSONValue.parse(text, maximumDepth: 34)
        require(again?["_id"] == object.document["_id"], "an object is not valid JSON")
        require(object.fault != nil || object.document["_id"] != nil, "an object has no id")
    }
}

/// The highest numbers of a session, none of which may fall.
private struct Heights {
    var server: Int64 = 0
    var client: Int64 = 0
    var uploaded: Int64 = 0
}

private func converse(_ script: ArraySlice<UInt8>) {
    guard let dialect = RealmDialect(offered: ["com.mongodb.realm-query-sync#14"]) else { return }
    var limits = RealmLimits()
    limits.messageBytes = 2048
    limits.unpackedBytes = 1 << 16
    limits.sessions = 4
    limits.pendingUploads = 4
    var connection = RealmConnection(dialect, limits: limits) { 0x1234_5678 }
    var heights: [String: Heights] = [:]
    var uploads: [RealmUpload] = []
    var rest = script
    while rest.count >= 2 {
        let count = Int(rest[rest.startIndex]) << 8 | Int(rest[rest.startIndex + 1])
        let message = Array(rest.dropFirst(2).prefix(count & 0x7FFF))
        rest = rest.dropFirst(2 + message.count)
        let output = connection.receive(message)
        judge(output, &heights)
        if let upload = output.upload { uploads.append(upload) }
        // The top bit lets an upload wait.
        guard count & 0x8000 == 0 else { continue }
        while let upload = uploads.popLast() {
            judge(store(upload, in: &connection), &heights)
        }
    }
    judge(connection.drain(), &heights)
    require(connection.receive(Array("ping 1 0\n".utf8)).messages.isEmpty, "no end of a drain")
}

private func store(_ upload: RealmUpload, in connection: inout RealmConnection) -> RealmOutput {
    do throws(RealmFault) {
        let changesets = try upload.changesets()
        for changeset in changesets { decodeChangeset(changeset.bytes) }
        let stored = changesets.map { changeset in
            let refusal = RealmRefusal(className: "V", key: .null, reason: "no")
            let isRefused = changeset.bytes.first == UInt8(ascii: "r")
            return RealmStored(changeset, refused: isRefused ? [refusal] : [])
        }
        return connection.stored([(upload.ticket, stored)])
    } catch {
        return connection.failed(error)
    }
}

private func judge(_ output: RealmOutput, _ heights: inout [String: Heights]) {
    for message in output.messages {
        let head = String(decoding: message.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
        let fields = head.split(separator: " ").map(String.init)
        switch fields.first {
        case "download":
            let numbers = fields.dropFirst(2).compactMap { Int64($0) }
            require(fields.count == 14 && numbers.count == 12, "a download: \(head)")
            let before = heights[fields[1]] ?? Heights()
            let now = Heights(server: numbers[0], client: numbers[1], uploaded: numbers[5])
            require(now.server > before.server, "the server version falls: \(head)")
            require(now.client >= before.client, "the client version falls: \(head)")
            require(now.uploaded >= before.uploaded, "upload S falls: \(head)")
            require(now.uploaded <= now.server && numbers[3] > 0, "numbers do not fit: \(head)")
            require(numbers[0] == numbers[2] && numbers[1] == numbers[4], "they differ: \(head)")
            require((1...2).contains(numbers[7]), "a batch state: \(head)")
            heights[fields[1]] = now
        case "unbound": heights[fields[1]] = nil
        case "json_error":
            require(["101", "201", "231"].contains(fields[1]), "an error: \(head)")
            require((fields[1] == "101") == (fields[3] == "0"), "its session: \(head)")
        case "ident", "mark", "pong", "log_message": break
        default: require(false, "a message: \(head)")
        }
    }
}
