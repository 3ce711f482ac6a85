import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Sizes of responses and stored objects",
        .serialized,
        .timeLimit(.minutes(3))
    )
    struct AnswerSizeTests {
        private static let maximumAnswerBytes = 16 << 20

        @Test("A number counts with its stored digits")
        func numbers() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                func save(_ count: Int, of number: String) async throws -> HTTPAnswer {
                    let list = Array(repeating: number, count: count).joined(separator: ",")
                    return try await http(
                        "POST",
                        service.url + "/1.1/installations",
                        headers: app.clientHeaders.merging(
                            ["Content-Type": "application/json"]
                        ) { $1 },
                        bytes: Array(#"{"deviceType":"android","list":[\#(list)]}"#.utf8)
                    )
                }
                for number in ["1e308", "-1e-307", "5e-324"] {
                    let refused = try await save(30_000, of: number)
                    #expect(refused.status == 400, "\(number)")
                    #expect(refused.json?["code"] == 116)
                    #expect(try await save(700, of: number).status == 201)
                }
                // It is within the limit, also when it is stored.
                #expect(try await save(30_000, of: "1.5").status == 201)
                let kept = try await stack.database.query(
                    "select max(octet_length(fields::text)) from installations"
                )
                #expect(try #require(kept.first.flatMap { Int($0) }) <= 256 * 1024 + 30_000)
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("A find of more than 16 MiB is refused, and a scan uses a smaller page instead")
        func finds() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                let text = String(repeating: "x", count: 250_000)
                var ids: [String] = []
                for number in 0..<80 {
                    let answer = try await http(
                        "POST",
                        service.url + "/1.1/installations",
                        headers: app.clientHeaders,
                        body: [
                            "deviceType": "android", "installationId": .string("phone-\(number)"),
                            "text": .string(text), "number": JSONValue(number),
                        ]
                    )
                    ids.append(try #require(answer.json?["objectId"]?.string))
                }
                let parse = [
                    "X-Parse-Application-Id": app.id, "X-Parse-Master-Key": app.masterKey,
                ]
                func get(
                    _ path: String,
                    _ headers: [String: String]
                ) async throws -> HTTPAnswer {
                    let answer = try await http("GET", service.url + path, headers: headers)
                    #expect(answer.body.count <= Self.maximumAnswerBytes, "\(path)")
                    return answer
                }
                let cql = "select%20*%20from%20_Installation%20limit%20"
                for (path, headers) in [
                    ("/1.1/installations?limit=", app.masterHeaders),
                    ("/1.1/classes/_Installation?order=-number&limit=", app.masterHeaders),
                    // An index selects a few.
                    (
                        "/1.1/installations?where=%7B%22deviceType%22:%22android%22%7D&limit=",
                        app.masterHeaders
                    ),
                    ("/1.1/cloudQuery?cql=" + cql, app.masterHeaders),
                    ("/parse/classes/_Installation?limit=", parse),
                ] {
                    let refused = try await get(path + "80", headers)
                    #expect(refused.status == 400, "\(path)")
                    #expect(refused.json?["code"] == 116)
                    #expect(refused.json?["error"]?.string?.contains("limit") == true)
                    let found = try await get(path + "50", headers)
                    #expect(found.status == 200, "\(path)")
                    #expect(found.json?["results"]?.array?.count == 50)
                }
                for key in ["", "&scan_key=number"] {
                    var scanned: [String] = []
                    var cursor = ""
                    var pages = 0
                    repeat {
                        let answer = try await get(
                            "/1.1/scan/classes/_Installation?limit=1000\(key)\(cursor)",
                            app.masterHeaders
                        )
                        #expect(answer.status == 200)
                        let results = try #require(answer.json?["results"]?.array)
                        #expect(!results.isEmpty)
                        scanned += results.compactMap { $0["objectId"]?.string }
                        cursor = (answer.json?["cursor"]?.string).map { "&cursor=\($0)" } ?? ""
                        pages += 1
                    } while !cursor.isEmpty && pages < 10
                    #expect(pages == 2)
                    #expect(scanned.count == ids.count && Set(scanned) == Set(ids))
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("A large response is made while it is read, so a slow peer's does not fill memory")
        func slowReaders() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                let (count, text) = (60, String(repeating: "x", count: 200_000))
                for number in 0..<count {
                    let saved = try await http(
                        "POST",
                        service.url + "/1.1/installations",
                        headers: app.clientHeaders,
                        body: [
                            "deviceType": "android", "installationId": .string("phone-\(number)"),
                            "text": .string(text), "number": JSONValue(number),
                        ]
                    )
                    #expect(saved.status == 201)
                }
                let leanCloud = [
                    "GET /1.1/installations?order=-number&limit=100&count=1",
                    "GET /1.1/scan/classes/_Installation?scan_key=-number&limit=100",
                ]
                let parse = "GET /parse/classes/_Installation?order=-number&limit=100&count=1"
                for line in leanCloud + [parse] {
                    let port = try #require(URLComponents(string: service.url)?.port)
                    let peer = try LoopbackSocket(port: UInt16(port))
                    defer { peer.close() }
                    let key = line == parse ? "X-Parse-Master-Key: \(app.masterKey)" : "X-A: b"
                    let request = """
                        \(line) HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-LC-Id: \(app.id)\r\n\
                        X-LC-Key: \(app.masterKey),master\r\n\
                        X-Parse-Application-Id: \(app.id)\r\n\(key)\r\n\r\n
                        """
                    try peer.send(Array(request.utf8))
                    let first = try await onThread { try peer.receive() }
                    // Its peer reads no more now than the two kernels buffer.
                    #expect(try await held(by: service) < 1 << 20, "\(line)")
                    let rest = try await onThread { try peer.receiveAll() }
                    let answer = try Support.parse(first + rest, of: line)
                    let results = try #require(answer.json?["results"]?.array)
                    let numbers = results.compactMap { $0["number"]?.integer }
                    #expect(numbers == (0..<count).reversed(), "\(line)")
                    #expect(results.allSatisfy { $0["text"]?.string == text })
                    let counted = line.hasSuffix("count=1") ? "count" : "cursor"
                    #expect(answer.json?[counted] == (counted == "count" ? 60 : .null))
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test(
            "Objects that grow while a slow peer reads count again, and a too large rest is cut off"
        )
        func growing() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                let count = 1000
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, fields)
                    select '\(app.id)', 'o' || lpad(n::text, 4, '0'), 'android',
                        jsonb_build_object('text', repeat('x', 8000))
                    from generate_series(1, \(count)) as n
                    """
                )
                // In the first case there is space for all; in the second they come to 200 MB.
                for grown in [20, count] {
                    let port = try #require(URLComponents(string: service.url)?.port)
                    let peer = try LoopbackSocket(port: UInt16(port))
                    defer { peer.close() }
                    let request = """
                        GET /1.1/installations?order=objectId&limit=\(count) HTTP/1.1\r\nHost: a\r\n\
                        Connection: close\r\nX-LC-Id: \(app.id)\r\n\
                        X-LC-Key: \(app.masterKey),master\r\n\r\n
                        """
                    try peer.send(Array(request.utf8))
                    var answer = try await onThread { try peer.receive() }
                    _ = try await stack.database.query(
                        """
                        update installations
                        set fields = jsonb_build_object('text', repeat('y', 200000))
                        where object_id > 'o' || lpad('\(count - grown)', 4, '0')
                        """
                    )
                    var mostHeld = 0
                    while let more = try? await onThread({ try peer.receive() }) {
                        answer += more
                        mostHeld = max(mostHeld, try await held(by: service))
                        // It has failed already.
                        if answer.count > 2 * Self.maximumAnswerBytes { break }
                    }
                    #expect(mostHeld < 1 << 20)
                    if grown < count {
                        let whole = try Support.parse(answer, of: "growing")
                        let results = try #require(whole.json?["results"]?.array)
                        let ids = results.compactMap { $0["objectId"]?.string }
                        #expect(ids.count == count && ids == ids.sorted())
                        let texts = results.suffix(grown).compactMap { $0["text"]?.string }
                        #expect(texts.allSatisfy { $0.utf8.count == 200_000 })
                    } else {
                        #expect(answer.count < Self.maximumAnswerBytes + (1 << 20))
                        #expect(throws: TestFailure.self) {
                            try Support.parse(answer, of: "growing")
                        }
                    }
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        private func held(by service: Stack.Service) async throws -> Int {
            let metrics = try await http("GET", service.url + "/metrics").text
            let line = metrics.split(separator: "\n").first {
                $0.hasPrefix("http_server_held_answer_bytes")
            }
            return try #require(line?.split(separator: " ").last.flatMap { Int($0) })
        }
    }
}
