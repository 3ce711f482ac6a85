import JSON
import RealmSync
import Testing

/// The conversation of one connection.
@Suite(.timeLimit(.minutes(1)))
struct ConnectionTests {
    @Test(
        "The highest usable dialect is chosen, in the client's own spelling",
        arguments: [
            ((2...14).reversed().map { "com.mongodb.realm-query-sync#\($0)" }, 14, "#14"),
            ((2...7).reversed().map { "com.mongodb.realm-query-sync/\($0)" }, 7, "/7"),
            (["com.mongodb.realm-query-sync#6", "com.mongodb.realm-query-sync#15"], 6, "#6"),
            (["com.mongodb.realm-query-sync/9", "com.mongodb.realm-query-sync#9"], 9, "/9"),
        ]
    )
    func dialects(_ offered: [String], _ version: Int, _ end: String) throws {
        let dialect = try #require(RealmDialect(offered: offered))
        #expect(dialect.version == version)
        #expect(dialect.subprotocol == "com.mongodb.realm-query-sync" + end)
    }

    @Test(
        "No other subprotocol is taken",
        arguments: [
            [], ["com.mongodb.realm-sync#14"], ["com.mongodb.realm-query-sync#5"],
            ["com.mongodb.realm-query-sync#15"], ["com.mongodb.realm-query-sync#014"],
            ["com.mongodb.realm-query-sync#1４"], ["com.mongodb.realm-query-sync"],
            ["com.mongodb.realm-query-sync#"], ["com.mongodb.realm-query-sync-14"],
            ["Com.mongodb.realm-query-sync#14"],
        ] as [[String]]
    )
    func otherDialects(_ offered: [String]) {
        #expect(RealmDialect(offered: offered) == nil)
    }

    @Test("A new file gets an identity, and the end of its bootstrap, once", arguments: 6...14)
    func bootstrap(_ version: Int) throws {
        var connection = try makeConnection(version)
        let body = #"{"schemaVersion":0,"sessionReason":0}"#
        let ident = connection.say("bind 1 37 0 1 0\n" + body)
        let fields = try #require(ident.first).split(separator: " ")
        #expect(ident.count == 1 && fields[0] == "ident" && fields[1] == "1")
        #expect(try #require(Int64(fields[2])) >= 2)
        #expect(try #require(Int64(fields[3].dropLast())) >= 1)
        let answer = connection.say("ident 1 \(fields[2]) 1 0 0 0 0 3 2\n{}")
        let download = try #require(answer.first).split(separator: " ")
        #expect(answer.count == 1)
        #expect(download[0...4].joined(separator: " ") == "download 1 1 0 1")
        #expect(try #require(Int64(download[5])) > 0)
        #expect(download[6...].joined(separator: " ") == "0 0 3 1 0 0 12 0\n1 0 0 1 0 0")
        #expect(answer.first?.hasSuffix(" ") == true)
    }

    @Test("A known file gets nothing before it has sent something")
    func knownFile() throws {
        var connection = try makeConnection()
        #expect(connection.say("bind 7 0 0 0 0\n") == [])
        #expect(connection.say("ident 7 987 1 123456 42 123456 9 1 2\n{}") == [])
        #expect(connection.say("mark 7 5\n") == ["mark 7 5\n"])
        let upload = try connection.upload([43, 45], on: 7, server: 123_450)
        #expect(
            try connection.storeAll(upload)
                == ["download 7 123457 45 123457 9 45 123450 1 2 0 0 0 0\n"]
        )
    }

    @Test("A file with the identity 1 gets changesets of another origin")
    func firstIdentity() throws {
        var connection = try makeConnection()
        _ = connection.say("bind 1 0 0 0 0\n")
        let answer = connection.say("ident 1 1 1 0 0 0 4 0 2\n{}")
        #expect(answer == ["download 1 1 0 1 4 0 0 0 1 0 0 12 0\n1 0 0 2 0 0 "])
    }

    @Test("A bootstrap that was lost continues above the newest server version")
    func lostBootstrap() throws {
        var connection = try makeConnection()
        _ = connection.say("bind 1 0 0 0 0\n")
        let answer = connection.say("ident 1 5 1 0 3 8 4 0 2\n{}")
        #expect(answer == ["download 1 9 3 9 4 3 0 0 1 0 0 12 0\n9 3 0 1 0 0 "])
    }

    @Test("A new query is complete at once, and an old one ends the connection")
    func queries() throws {
        var connection = try makeConnection()
        connection.begin(server: 4, client: 7, query: 1)
        let body = #"{"Two":"(TRUEPREDICATE)"}"#
        #expect(
            connection.say("query 1 2 25\n" + body)
                == ["download 1 5 7 5 9 7 0 2 1 0 0 12 0\n5 7 0 1 0 0 "]
        )
        #expect(connection.receive(Array("query 1 2 2\n{}".utf8)).end != nil)
    }

    @Test("Nothing is acknowledged before it is stored, nor past a gap")
    func order() throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let first = try connection.upload([5, 7], server: 1)
        let second = try connection.upload([8], server: 1)
        let third = try connection.upload([9], server: 1)
        #expect(try connection.storeAll(third) == [])
        #expect(try connection.storeAll(second) == [])
        #expect(
            try connection.storeAll(first) == ["download 1 2 9 2 9 9 1 0 2 0 0 0 0\n"]
        )
        #expect(try connection.storeAll(first) == [])
    }

    @Test("An upload without transactions is never acknowledged")
    func emptyUpload() throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let output = connection.receive(Array("upload 1 0 0 0 12 2 2\n".utf8))
        #expect(output.upload == nil && output.messages.isEmpty && output.end == nil)
        let packed = zlib([])
        let head = Array("upload 1 1 0 \(packed.count) 12 2 2\n".utf8)
        let upload = try #require(connection.receive(head + packed).upload)
        #expect(try upload.changesets().isEmpty)
        #expect(connection.stored([(upload.ticket, [])]).messages.isEmpty)
    }

    @Test("A refused object is named in a compensating write, and its transaction acknowledged")
    func refused() throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let upload = try connection.upload([7, 8, 9], server: 1)
        let id = RealmKey.objectID(high: 0, low: 1)
        let stored = try upload.changesets().map { changeset in
            let refusal = RealmRefusal(className: "Bad", key: id, reason: "must be \"é\"")
            return RealmStored(changeset, refused: changeset.version == 8 ? [refusal] : [])
        }
        let messages = connection.stored([(upload.ticket, stored)]).messages.map(text)
        #expect(messages.count == 2)
        let body =
            #"{"message":"one object was not stored","logURL":"","tryAgain":true,"#
            + #""shouldClientReset":false,"isRecoveryModeDisabled":false,"action":"Warning","#
            + #""rejectedUpdates":[{"table":"Bad","pk":"CgAAAAAAAAAAAAAAAQ==","#
            + #""reason":"must be \"é\""}],"rejectedClientVersion":9,"#
            + #""compensatingWriteServerVersion":2}"#
        #expect(messages[0] == "json_error 231 \(body.utf8.count) 1\n" + body)
        #expect(messages[1] == "download 1 2 9 2 9 9 1 0 2 0 0 12 0\n2 9 0 1 0 0 ")
    }

    @Test(
        "The key of a refused object is encoded as clients decode it",
        arguments: [
            (.null, "AA=="), (.global, "AA=="), (.integer(-5), "AUQ="), (.integer(64), "AcAA"),
            (.string("kü"), "AwNrw7w="), (.string(""), "AwA="),
            (.uuid(high: 1, low: 2), "CwAAAAAAAAABAAAAAAAAAAI="),
            (.string(String(repeating: "k", count: 5000)), "AA=="),
        ] as [(RealmKey, String)]
    )
    func encodedKeys(_ key: RealmKey, _ encoded: String) throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let upload = try connection.upload([2], server: 1)
        let refusal = RealmRefusal(className: "V", key: key, reason: "no")
        let stored = try upload.changesets().map { RealmStored($0, refused: [refusal]) }
        let messages = connection.stored([(upload.ticket, stored)]).messages.map(text)
        #expect(messages[0].contains(#""pk":"\#(encoded)""#))
    }

    @Test("Of many refused objects some are named, and no reason grows without bound")
    func manyRefused() throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let upload = try connection.upload([2], server: 1)
        let refusals = (0..<1000).map { number in
            RealmRefusal(
                className: "V",
                key: .integer(number),
                reason: String(repeating: "é", count: 10_000)
            )
        }
        let stored = try upload.changesets().map { RealmStored($0, refused: refusals) }
        let message = try #require(connection.stored([(upload.ticket, stored)]).messages.first)
        #expect(message.count < 20_000)
        #expect(text(message).contains("1000 objects were not stored; the first 31 are named"))
    }

    @Test("However many transactions of some uploads are refused, their answer is small")
    func manyRefusedTransactions() throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let outcomes = try (0..<20).map { number in
            let upload = try connection.upload(
                (0..<200).map { number * 200 + $0 + 2 },
                server: 1
            )
            let stored = try upload.changesets().map { changeset in
                let key = RealmKey.integer(changeset.version)
                let refusal = RealmRefusal(className: "V", key: key, reason: "no")
                let isRefused = changeset.version % 2 == 0
                return RealmStored(
                    changeset,
                    refused: isRefused ? [refusal] : [],
                    isUnreadable: !isRefused
                )
            }
            return (upload.ticket, stored)
        }
        let messages = connection.stored(outcomes).messages.map(text)
        #expect(messages.count == 3 && messages.reduce(0) { $0 + $1.utf8.count } < 20_000)
        #expect(messages[0].contains("2000 transactions from 3 on cannot be read"))
        #expect(messages[1].contains("2000 objects were not stored; the first 64 are named"))
        #expect(messages[1].contains("\"rejectedClientVersion\":4001,"))
        #expect(messages[2].hasPrefix("download 1 2 4001 2 "))
    }

    @Test("A transaction that cannot be read is acknowledged, and noted in newer clients' logs")
    func unreadable() throws {
        for version in [9, 10] {
            var connection = try makeConnection(version)
            connection.begin(server: 1)
            let upload = try connection.upload([2], server: 1, changeset: [0x10])
            let changeset = try upload.changesets()[0]
            #expect(throws: RealmChangesetFault.self) {
                _ = try changeset.decoded()
            }
            let stored = RealmStored(changeset, refused: [], isUnreadable: true)
            let messages = connection.stored([(upload.ticket, [stored])]).messages.map(text)
            #expect(messages.last == "download 1 2 2 2 9 2 1 0 2 0 0 0 0\n")
            #expect(messages.count == (version < 10 ? 1 : 2))
            if version >= 10 { #expect(messages[0].hasPrefix("log_message 1 ")) }
        }
    }

    @Test("A session that cannot store pauses alone, and repeats what is not acknowledged")
    func unavailable() throws {
        var connection = try makeConnection()
        connection.begin(1, server: 1)
        connection.begin(2, server: 1)
        let first = try connection.upload([2], on: 1, server: 1)
        let other = try connection.upload([2], on: 2, server: 1)
        let later = try connection.upload([3], on: 1, server: 1)
        let error = connection.unavailable(first.ticket).messages.map(text)
        let body =
            #"{"message":"unavailable","logURL":"","tryAgain":true,"shouldClientReset":false,"#
            + #""isRecoveryModeDisabled":false,"action":"Transient","backoffIntervalSec":3,"#
            + #""backoffMaxDelaySec":30,"backoffMultiplier":2}"#
        #expect(error == ["json_error 201 \(body.utf8.count) 1\n" + body])
        // Nothing else may be sent to it, and what is in flight does not count.
        #expect(connection.unavailable(later.ticket).messages.isEmpty)
        #expect(try connection.storeAll(first) == [])
        #expect(connection.say("mark 1 4\n") == [])
        #expect(connection.say("upload 1 0 0 0 9 1 1\n") == [])
        #expect(try connection.storeAll(other).count == 1)
        #expect(connection.say("unbind 1\n") == ["unbound 1\n"])
        connection.begin(1, server: 1)
        let again = try connection.upload([2, 3], on: 1, server: 1)
        #expect(try connection.storeAll(first) == [])
        #expect(try connection.storeAll(again) == ["download 1 2 3 2 9 3 1 0 2 0 0 0 0\n"])
    }

    @Test("A drain asks the whole client to come back, and ends the conversation")
    func drain() throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let upload = try connection.upload([2], server: 1)
        let messages = connection.drain().messages.map(text)
        #expect(messages.count == 1 && messages[0].hasPrefix("json_error 101 "))
        #expect(messages[0].contains(" 0\n{") && messages[0].contains(#""action":"Transient""#))
        #expect(messages[0].contains(#""backoffIntervalSec":2"#))
        #expect(try connection.storeAll(upload) == [])
        #expect(connection.say("ping 1 0\n") == [] && connection.drain().messages.isEmpty)
    }

    @Test(
        "A drain may ask for a long pause, which is never longer than its own maximum",
        arguments: [2, 30, 200]
    )
    func longDrain(_ pause: Int64) throws {
        var connection = try makeConnection()
        let messages = connection.drain(pause: pause).messages.map(text)
        let body = try JSONValue.parse(
            String(try #require(messages.first?.split(separator: "\n").last))
        )
        #expect(body["backoffIntervalSec"]?.integer == Int(pause))
        #expect(body["backoffMaxDelaySec"]?.integer == max(30, Int(pause)))
        #expect(body["backoffMultiplier"]?.integer == 2)
    }

    @Test("A ping is answered, and a client's complaint is passed on without an answer")
    func pingsAndComplaints() throws {
        var connection = try makeConnection()
        #expect(connection.say("ping 9223372036854775807 12\n") == ["pong 9223372036854775807\n"])
        let body = #"{"message":"Bad sync progress"}"#
        let output = connection.receive(Array("json_error 112 \(body.utf8.count) 1\n\(body)".utf8))
        #expect(output.messages.isEmpty && output.end == nil)
        #expect(output.complaint?.code == 112 && output.complaint?.message == "Bad sync progress")
        #expect(connection.say("test_command 1 1 2\n{}") == [])
    }

    @Test("A thousand sessions share a connection, and one beyond the limit makes it pause")
    func manySessions() throws {
        var connection = try makeConnection()
        for session in 1...1024 { connection.begin(session, server: 1) }
        #expect(connection.sessionCount == 1024)
        for session in stride(from: 1024, to: 24, by: -1) {
            let upload = try connection.upload([2], on: session, server: 1)
            #expect(
                try connection.storeAll(upload) == ["download \(session) 2 2 2 9 2 1 0 2 0 0 0 0\n"]
            )
        }
        let output = connection.receive(Array("bind 2000 0 0 0 0\n".utf8))
        #expect(output.end == .tooManySessions)
        #expect(output.messages.map(text).first?.hasPrefix("json_error 101 ") == true)
    }

    @Test("Uploads that are not stored are bounded")
    func manyUploads() throws {
        var limits = RealmLimits()
        limits.pendingUploads = 4
        var connection = try makeConnection(limits: limits)
        connection.begin(server: 1)
        _ = try connection.upload([2], server: 1)
        #expect(!connection.isFull)
        let second = try connection.upload([3], server: 1)
        #expect(connection.isFull)
        _ = connection.say("unbind 1\n")
        #expect(!connection.isFull)
        #expect(try connection.storeAll(second) == [])
        connection.begin(2, server: 1)
        for version in 2...5 { _ = try connection.upload([version], on: 2, server: 1) }
        let output = connection.receive(Array("upload 2 0 13 0 6 1 1\n6 1 0 0 4 abcd".utf8))
        #expect(output.upload == nil)
        #expect(output.end == .malformed("upload") || output.end == .tooManyUploads)
    }

    @Test("A compressed upload is decompressed to exactly its stated size")
    func compressed() throws {
        let body = Array("5 0 375000000000 0 3 abc7 0 375000000000 0 0 ".utf8)
        let packed = zlib(body)
        func changesets(_ plain: Int, _ packed: [UInt8]) throws -> [RealmChangeset] {
            var connection = try makeConnection()
            connection.begin(server: 1)
            let head = Array("upload 1 1 \(plain) \(packed.count) 7 0 0\n".utf8)
            let upload = try #require(connection.receive(head + packed).upload)
            return try upload.changesets()
        }
        let found = try changesets(body.count, packed)
        #expect(
            found.map(\.version) == [5, 7] && found.map { Array($0.bytes) } == [[97, 98, 99], []]
        )
        #expect(throws: RealmFault.compression) { try changesets(body.count - 1, packed) }
        #expect(throws: RealmFault.compression) { try changesets(body.count + 1, packed) }
        #expect(throws: RealmFault.compression) { try changesets(body.count, packed + [0]) }
        #expect(throws: RealmFault.compression) { try changesets(body.count, packed + packed) }
        #expect(throws: RealmFault.compression) {
            try changesets(body.count, Array(packed.dropLast()))
        }
        #expect(throws: RealmFault.compression) { try changesets(body.count, []) }
        let bomb = zlib([UInt8](repeating: 0x30, count: 32 << 20))
        #expect(bomb.count < 64 << 10)
        #expect(throws: RealmFault.compression) { try changesets(1000, bomb) }
    }

    @Test("An upload beyond the limits ends the connection, and keeps the client's data")
    func tooLarge() throws {
        var limits = RealmLimits()
        limits.messageBytes = 1000
        limits.unpackedBytes = 2000
        limits.changesets = 2
        var connection = try makeConnection(limits: limits)
        connection.begin(server: 1)
        var other = connection
        let body = [UInt8](repeating: 0x30, count: 1000)
        #expect(connection.receive(Array("upload 1 0 1000 0 7 0 0\n".utf8) + body).end == .tooLarge)
        #expect(connection.receive(Array("ping 1 0\n".utf8)).messages.isEmpty)
        let packed = Array("upload 1 1 2001 1 7 0 0\nx".utf8)
        #expect(other.receive(packed).end == .tooLarge)
        connection = try makeConnection(limits: limits)
        connection.begin(server: 1)
        let upload = try connection.upload([2, 3, 4], server: 1)
        #expect(throws: RealmFault.tooLarge) { try upload.changesets() }
        let end = connection.failed(.tooLarge)
        #expect(end.messages.isEmpty && end.end == .tooLarge)
    }

    @Test("Versions that fall, or run ahead of the server's, end the connection")
    func versions() throws {
        for (stated, server) in [([7], 1), ([8], 2), ([6], 1)] {
            var connection = try makeConnection()
            connection.begin(server: 1, client: 7)
            let upload = try connection.upload(stated, server: server)
            let stored = try upload.changesets().map { RealmStored($0, refused: []) }
            let output = connection.stored([(upload.ticket, stored)])
            #expect(output.end == .malformed("upload's versions") && output.messages.isEmpty)
        }
    }
}
