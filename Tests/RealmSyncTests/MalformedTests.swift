import JSON
import RealmSync
import Testing

/// Messages that no client sends. Each ends TCP without a word, which leaves a client's file as it is.
@Suite(.timeLimit(.minutes(1)))
struct MalformedTests {
    @Test(
        "A malformed message ends the connection without an answer",
        arguments: [
            "", " ", "\n", "bind", "bind ", "unknown 1\n", "BIND 2 0 0 0 0\n", "error 1 0 0\n",
            "a_word_without_end_a_word_without_end",
            "bind\n", "bind 2 0 0 0\n", "bind 2 0 0 0 0 0\n", "bind 2 0 0 0 0", "bind 0 0 0 0 0\n",
            "bind -1 0 0 0 0\n", "bind +2 0 0 0 0\n", "bind 2  0 0 0 0\n", "bind 2 0 0 0 0 \n",
            "bind 2 0 0 2 0\n", "bind 2 0 0 0 2\n", "bind 2 1 0 0 0\n", "bind 2 0 1 0 0\n",
            "bind 2 0 0 0 0\nx", "bind 2 1 9223372036854775807 0 0\nx",
            "bind 2 9223372036854775807 1 0 0\nx", "bind 9223372036854775808 0 0 0 0\n",
            "bind 99999999999999999999999 0 0 0 0\n", "bind ２ 0 0 0 0\n", "bind 0x2 0 0 0 0\n",
            "ident 1 5 77 1 0 1 9 0\n", "ident 1 5 77 1 0 1 9 0 2\n{",
            "ident 1 5 77 1 0 1 9 0 2\n{}x",
            "ident 1 0 77 1 0 1 9 0 2\n{}", "ident 1 5 0 1 0 1 9 0 2\n{}",
            "ident 1 5 77 9223372036854775807 0 1 9 0 2\n{}",
            "ident 1 5 77 1 9223372036854775807 1 9 0 2\n{}",
            "ident 1 5 77 1 0 9223372036854775807 9 0 2\n{}", "ident 1 5 77 -1 0 1 9 0 2\n{}",
            "query 2 1\n", "query 2 1 3\n{}", "query 2 -1 2\n{}", "mark 2\n", "mark 2 1 1\n",
            "mark 2 1\nx", "mark 2 -1\n", "mark 0 1\n",
            "upload 2 0 0 0 0 0\n", "upload 2 2 0 0 0 0 0\n", "upload 2 0 1 0 0 0 0\n",
            "upload 2 0 0 1 0 0 0\n", "upload 2 0 0 0 0 0 0\nx", "upload 2 1 0 1 0 0 0\n",
            "upload 2 0 9223372036854775807 0 0 0 0\nx", "upload 0 0 0 0 0 0 0\n",
            "upload 2 1 9223372036854775807 1 0 0 0\nx",
            "upload 2 1 1 9223372036854775807 0 0 0\nx",
            "unbind\n", "unbind 2 0\n", "unbind 0\n", "unbind 2\nx", "unbind 2", "unbind x\n",
            "ping 1\n", "ping 1 2 3\n", "ping -1 2\n", "ping 1 2\nx",
            "ping 9223372036854775808 0\n",
            "json_error 1 2\n", "json_error 1 2 0\n{", "json_error 1 2 0\n{}x",
            "json_error 1 9223372036854775807 0\n{}", "test_command 1 1\n", "test_command 1 1 2\n",
        ]
    )
    func malformed(_ message: String) throws {
        var connection = try makeConnection()
        for session in 2...3 { connection.begin(session, server: 1) }
        _ = connection.say("bind 1 0 0 0 0\n")
        let output = connection.receive(Array(message.utf8))
        #expect(output.end != nil && output.messages.isEmpty && output.upload == nil)
        #expect(connection.say("ping 1 0\n") == [])
    }

    @Test(
        "A message out of its order ends the connection without an answer",
        arguments: [
            ["bind 1 0 0 0 0\n", "bind 1 0 0 1 0\n"], ["ident 1 5 77 1 0 1 9 0 2\n{}"],
            ["mark 1 1\n"], ["unbind 1\n"], ["upload 1 0 0 0 0 0 0\n"], ["query 1 1 2\n{}"],
            ["bind 1 0 0 0 0\n", "mark 1 1\n"], ["bind 1 0 0 0 0\n", "upload 1 0 0 0 0 0 0\n"],
            ["bind 1 0 0 0 0\n", "query 1 1 2\n{}"],
            ["bind 1 0 0 0 0\n", "upload 1 0 14 0 5 0 0\n5 0 0 0 4 abcd"],
            [
                "bind 1 0 0 0 0\n", "ident 1 5 77 1 0 1 9 0 2\n{}", "ident 1 5 77 1 0 1 9 0 2\n{}",
            ],
            ["bind 1 0 0 0 0\n", "unbind 1\n", "unbind 1\n"],
            ["bind 1 0 0 0 0\n", "ident 1 5 77 1 0 1 9 3 2\n{}", "query 1 3 2\n{}"],
        ]
    )
    func unexpected(_ messages: [String]) throws {
        var connection = try makeConnection()
        for message in messages.dropLast() {
            #expect(connection.receive(Array(message.utf8)).end == nil)
        }
        let output = connection.receive(Array((messages.last ?? "").utf8))
        #expect(output.end != nil && output.messages.isEmpty)
    }

    @Test(
        "An upload whose transactions are malformed is refused as a whole",
        arguments: [
            "5 0 0 0 4 abc", "5 0 0 0 4", "5 0 0 0 ", "5 0 0 4 abcd", "5  0 0 0 4 abcd",
            "5 0 0 0 4 abcdx", "0 0 0 0 0 ", "-5 0 0 0 0 ", "5 0 0 0 9223372036854775807 a",
            "5 0 0 0 0 5 0 0 0 0 ", "5 0 0 0 0 4 0 0 0 0 ", "5 0 99999999999999999999 0 0 ",
            "9223372036854775808 0 0 0 0 ", "x", " ",
        ]
    )
    func malformedTransactions(_ body: String) throws {
        var connection = try makeConnection()
        connection.begin(server: 1)
        let message = Array("upload 1 0 \(body.utf8.count) 0 5 0 0\n\(body)".utf8)
        let upload = try #require(connection.receive(message).upload)
        #expect(throws: RealmFault.malformed("upload")) { try upload.changesets() }
    }

    @Test("Numbers at their ends lead to no overflow")
    func ends() throws {
        let highest = 1 << 62
        var connection = try makeConnection()
        _ = connection.say("bind \(Int64.max) 0 0 1 0\n")
        _ = connection.say(
            "ident \(Int64.max) \(Int64.max) \(Int64.max) \(highest) \(highest) \(highest)"
                + " \(Int64.max) \(Int64.max - 1) 2\n{}"
        )
        #expect(connection.say("query \(Int64.max) \(Int64.max) 2\n{}").count == 1)
        #expect(connection.say("mark \(Int64.max) \(Int64.max)\n").count == 1)
        let body = "\(Int64.max) \(highest) \(Int64.max) \(Int64.max) 0 "
        let head = "upload \(Int64.max) 0 \(body.utf8.count) 0 \(Int64.max) 0 0\n"
        let upload = try #require(connection.receive(Array((head + body).utf8)).upload)
        let answer = try connection.storeAll(upload)
        #expect(
            answer == [
                "download \(Int64.max) \(highest + 2) \(Int64.max) \(highest + 2) \(Int64.max)"
                    + " \(Int64.max) \(highest) \(Int64.max) 2 0 0 0 0\n"
            ]
        )
    }

    @Test("No cut and no mutation of a recorded dialogue ends the process")
    func mutations() throws {
        var random = SeededGenerator(39)
        let turns = try recorded("dialogue.json").filter { $0["dir"] == "client" }
            .map { bytes(hex: $0["hex"]?.string ?? "") }
        var stored = 0
        for _ in 0..<20_000 {
            var connection = try makeConnection(Int.random(in: 6...14, using: &random))
            let mutatedTurn = Int.random(in: turns.indices, using: &random)
            for (place, turn) in turns.enumerated() {
                var message = turn
                if place == mutatedTurn {
                    switch Int.random(in: 0..<3, using: &random) {
                    case 0:
                        message = Array(message.prefix(.random(in: 0...turn.count, using: &random)))
                    case 1:
                        let place = Int.random(in: message.indices, using: &random)
                        message[place] = UInt8.random(in: 0...255, using: &random)
                    default:
                        let place = Int.random(in: message.indices, using: &random)
                        message.insert(UInt8(ascii: "9"), at: place)
                    }
                }
                guard let upload = connection.receive(message).upload else { continue }
                guard let changesets = try? upload.changesets() else {
                    _ = connection.failed(.compression)
                    continue
                }
                for changeset in changesets { _ = try? changeset.decoded() }
                let outcome = changesets.map { RealmStored($0, refused: []) }
                stored += connection.stored([(upload.ticket, outcome)]).messages.count
            }
        }
        #expect(stored > 5000)
    }
}
