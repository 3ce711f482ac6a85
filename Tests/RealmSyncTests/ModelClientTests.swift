import Foundation
import JSON
import RealmSync
import Support
import Testing

/// Whole conversations, judged by a model of the client that ends at every byte at which some build
/// of the real one would.
@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
)
struct ModelClientTests {
    /// A dialogue, turn by turn.
    private struct Transcript {
        var lines: [String] = []

        mutating func open() { lines.append(#"{"dir":"open"}"#) }

        mutating func add(_ direction: String, _ message: [UInt8]) {
            let hex = message.map { byte in
                let digits = String(byte, radix: 16)
                return digits.count < 2 ? "0" + digits : digits
            }
            lines.append(#"{"dir":"\#(direction)","hex":"\#(hex.joined())"}"#)
        }

        func judge() async throws -> ProgramAnswer {
            let python = try #require(TestEnvironment.python)
            let script = URL(filePath: #filePath).deletingLastPathComponent()
                .appending(path: "model_client.py").path
            return try await run(python, [script], input: Array(lines.joined(separator: "\n").utf8))
        }
    }

    /// A client with several files, whose every step is random.
    private struct RandomClient {
        struct File {
            var session: Int?
            var ident: (Substring, Substring)?
            var (server, client, own, salt, query) = (0, 0, 0, 0, 0)
            var uploads: [RealmUpload] = []
            var isPaused = false
        }

        var random: SeededGenerator
        var transcript = Transcript()
        var connection: RealmConnection
        var files = [File(), File(), File()]
        var sessions = 0
        let version: Int

        init(_ seed: UInt64) throws {
            random = SeededGenerator(seed)
            version = 6 + Int(seed % 9)
            connection = try makeConnection(version)
        }

        mutating func say(_ message: String) { say(Array(message.utf8), nil) }

        mutating func say(_ message: [UInt8], _ file: Int?) {
            transcript.add("client", message)
            let output = connection.receive(message)
            #expect(output.end == nil)
            if let file, let upload = output.upload { files[file].uploads.append(upload) }
            take(output)
        }

        mutating func take(_ output: RealmOutput) {
            for message in output.messages {
                transcript.add("server", message)
                let fields = text(message).split(separator: "\n")[0].split(separator: " ")
                guard fields.count > 3,
                    let file = files.indices.first(where: { index in
                        files[index].session.map(String.init) == String(fields[1])
                    })
                else { continue }
                if fields[0] == "ident" { files[file].ident = (fields[2], fields[3]) }
                if fields[0] == "download" {
                    files[file].server = Int(fields[2]) ?? 0
                    files[file].client = Int(fields[3]) ?? 0
                    files[file].salt = Int(fields[5]) ?? 0
                }
            }
        }

        mutating func step() throws {
            let file = Int.random(in: files.indices, using: &random)
            guard let session = files[file].session else { return begin(file) }
            if files[file].isPaused { return end(file, session) }
            switch Int.random(in: 0..<20, using: &random) {
            case 0..<9: upload(file, session)
            case 9..<15: try store(file)
            case 15: say("mark \(session) \(Int.random(in: 1...9, using: &random))\n")
            case 16: say("ping \(Int.random(in: 0...999, using: &random)) 1\n")
            case 17:
                files[file].query += 1
                say("query \(session) \(files[file].query) 2\n{}")
            case 18:
                if let upload = files[file].uploads.first {
                    files[file].isPaused = true
                    take(connection.unavailable(upload.ticket))
                } else {
                    end(file, session)
                }
            default: try reconnect()
            }
        }

        private mutating func begin(_ file: Int) {
            sessions += 1
            files[file].session = sessions
            let isNew = files[file].ident == nil
            say("bind \(sessions) 2 0 \(isNew ? 1 : 0) 0\n{}")
            let known = files[file]
            guard let ident = known.ident else { return }
            say(
                "ident \(sessions) \(ident.0) \(ident.1) \(known.server) \(known.client)"
                    + " \(known.server) \(known.salt) \(known.query) 2\n{}"
            )
        }

        private mutating func end(_ file: Int, _ session: Int) {
            say("unbind \(session)\n")
            forget(file)
        }

        private mutating func forget(_ file: Int) {
            files[file].session = nil
            files[file].uploads = []
            files[file].isPaused = false
            // What is not acknowledged is uploaded again.
            files[file].own = files[file].client
        }

        private mutating func reconnect() throws {
            if Bool.random(using: &random) {
                take(connection.drain(pause: .random(in: 2...200, using: &random)))
            }
            connection = try makeConnection(version)
            transcript.open()
            for file in files.indices { forget(file) }
        }

        private mutating func upload(_ file: Int, _ session: Int) {
            var body: [UInt8] = []
            for _ in 0..<Int.random(in: 0...3, using: &random) {
                files[file].own += Int.random(in: 1...3, using: &random)
                body += Array("\(files[file].own) \(files[file].server) 1 0 2 xx".utf8)
            }
            let isPacked = body.count > 30
            let sent = isPacked ? zlib(body) : body
            let sizes = "\(isPacked ? 1 : 0) \(body.count) \(isPacked ? sent.count : 0)"
            let head = "upload \(session) \(sizes) \(files[file].own) 0 0\n"
            say(Array(head.utf8) + sent, file)
        }

        private mutating func store(_ file: Int) throws {
            guard let place = files[file].uploads.indices.randomElement(using: &random) else {
                return
            }
            let upload = files[file].uploads.remove(at: place)
            var stored: [RealmStored] = []
            for changeset in try upload.changesets() {
                let kind = Int.random(in: 0..<6, using: &random)
                let refusal = RealmRefusal(
                    className: "V",
                    key: [.null, .integer(.min), .string("kü"), .uuid(high: 1, low: 2)][kind % 4],
                    reason: "é"
                )
                stored.append(
                    RealmStored(
                        changeset,
                        refused: kind < 2 ? [refusal, refusal] : [],
                        isUnreadable: kind == 5
                    )
                )
            }
            take(connection.stored([(upload.ticket, stored)]))
        }
    }

    @Test("No conversation breaks a rule of the client", arguments: 1...18 as ClosedRange<UInt64>)
    func conversations(_ seed: UInt64) async throws {
        var client = try RandomClient(seed)
        for _ in 0..<1500 { try client.step() }
        let verdict = try await client.transcript.judge()
        #expect(verdict.exit == .status(0), "\(verdict.errors)")
        #expect(client.transcript.lines.count > 1500)
    }

    @Test("The recorded dialogue breaks no rule of the client, and each change of an answer does")
    func recordedDialogue() async throws {
        var transcript = Transcript()
        for turn in try recorded("dialogue.json") {
            transcript.add(
                turn["dir"]?.string ?? "",
                bytes(hex: turn["hex"]?.string ?? "")
            )
        }
        #expect(try await transcript.judge().exit == .status(0))
        // The last answer is `download 1 2 7 2 <salt> 7 0 0 2 0 0 0 0`.
        let salt = "6618658032489436410"
        for wrong in [
            "download 1 0 7 2 \(salt) 7 0 0 2 0 0 0 0\n",
            "download 1 2 8 2 \(salt) 8 0 0 2 0 0 0 0\n",
            "download 1 2 7 1 \(salt) 7 0 0 2 0 0 0 0\n", "download 1 2 7 2 0 7 0 0 2 0 0 0 0\n",
            "download 1 2 7 2 \(salt) 6 0 0 2 0 0 0 0\n",
            "download 1 2 7 2 \(salt) 7 3 0 2 0 0 0 0\n",
            "download 1 2 7 2 \(salt) 7 0 1 2 0 0 0 0\n",
            "download 1 2 7 2 \(salt) 7 0 0 1 0 0 0 0\n",
            "download 1 2 7 2 \(salt) 7 0 0 0 0 0 0 0\n",
            "download 1 2 7 2 \(salt) 7 0 0 2 0.5 0 0 0\n",
            "download 1 2 7 2 \(salt) 7 0 0 2 0 0 1 0\n",
            "download 1 2 7 2 \(salt) 7 0 0 2 0 0 0 0\nx",
            "download 2 2 7 2 \(salt) 7 0 0 2 0 0 0 0\n", "mark 1 2\n", "unbound 1\n", "pong 1\n",
            "ident 1 5 5\n", "query_error 1 0 1 0\n", "json_error 202 2 1\n{}",
        ] {
            var changed = transcript
            changed.lines.removeLast(2)
            changed.add("server", Array(wrong.utf8))
            #expect(try await changed.judge().exit == .status(1), "\(wrong)")
        }
    }
}
