import Compression
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Imports from the console", .serialized, .timeLimit(.minutes(5)))
    struct ConsoleImportTests {
        private static func act(
            _ browser: inout Browser,
            _ fixture: ConsoleFixture,
            _ page: String,
            _ fields: [String: String]
        ) async throws -> HTTPAnswer {
            let token = try await fixture.formToken(&browser, of: fixture.app)
            return try await browser.post(page, fields.merging(["token": token]) { $1 })
        }

        /// Waits until a page has a text.
        private static func page(
            _ browser: Browser,
            _ path: String,
            having text: String
        ) async throws -> String {
            var browser = browser
            var last = ""
            for _ in 0..<300 {
                last = try await browser.get(path).text
                if last.contains(text) { return last }
                try await Task.sleep(for: .milliseconds(200))
            }
            throw TestFailure("no \(text) in \(last)")
        }

        private static func csv(_ count: Int) -> [UInt8] {
            let lines = (0..<count).map { number in
                number % 50 == 7
                    ? ",\(makeAPNsToken()),ann\(number)"
                    : "ios,\(makeAPNsToken()),ann\(number)"
            }
            return Array((["OS,Push Key,Member"] + lines).joined(separator: "\r\n").utf8)
        }

        @Test("A CSV file is mapped, tried, imported and reported, by forms alone")
        func csv() async throws {
            try await ConsoleFixture.run { fixture in
                var admin = try await fixture.operatorBrowser("admin")
                let page = try await fixture.upload(
                    &admin,
                    "csv",
                    name: "C:\\exports\\devices.csv",
                    Self.csv(2000)
                )
                let mapping = try await admin.get(page).text
                #expect(mapping.contains(">devices.csv<") && !mapping.contains("exports"))
                let selects = PageElements(mapping).elements.filter { $0.name == "select" }
                    .compactMap { $0.attributes["name"] }
                #expect(selects.filter { $0.hasPrefix("column") }.count == 3)
                // Without an address nothing begins, and the choice stays.
                let refused = try await Self.act(
                    &admin,
                    fixture,
                    page,
                    ["do": "start", "column1": "skip", "column2": "identity"]
                )
                #expect(
                    refused.status == 422 && refused.text.contains("has a device&#39;s address")
                )
                let chosen = ["column0": "deviceType", "column1": "token", "column2": "identity"]
                let dry = try await Self.act(
                    &admin,
                    fixture,
                    page,
                    chosen.merging(["do": "dry-run"]) { $1 }
                )
                #expect(dry.status == 303)
                let tried = try await Self.page(admin, page, having: "Would be imported")
                #expect(tried.contains("<dd>1,960</dd>") && tried.contains("<dd>40</dd>"))
                let found = try await admin.get(fixture.home + "/devices?by=identity&q=ann1")
                #expect(found.text.contains("No device matches."))
                let start = try await Self.act(
                    &admin,
                    fixture,
                    page,
                    chosen.merging(["do": "start"]) { $1 }
                )
                #expect(start.status == 303)
                let done = try await Self.page(admin, page, having: ">Finished<")
                #expect(done.contains("<dd>2,000</dd>") && done.contains("<dd>1,960</dd>"))
                #expect(done.contains("line 9; 59; 109; 159; 209"))
                let file = try await admin.get(page + "/rejected.csv")
                #expect(file.text.split(separator: "\r\n").count == 41)
                let imported = try await admin.get(fixture.home + "/devices?by=identity&q=ann1")
                #expect(!imported.text.contains("No device matches."))
                // It cannot begin again.
                let again = try await Self.act(&admin, fixture, page, ["do": "start"])
                #expect(again.status == 409)
                _ = try await fixture.audit(
                    having: "/console/:app/import",
                    "/console/:app/import/:job",
                    "ann@example.com"
                )
            }
        }

        @Test(
            "A gzip export of LeanCloud runs on when its service stops or is killed, and no line is lost"
        )
        func killed() async throws {
            let count = 60_000
            let lines = (0..<count).map { number in
                let digits = String(number, radix: 16)
                let id = String(repeating: "0", count: 24 - digits.count) + digits
                return number % 1000 == 3
                    ? "{broken"
                    : #"{"objectId":"\#(id)","deviceType":"ios","deviceToken":"\#(id)","city":"Oslo"}"#
            }
            let content = try Compression.gzip.compress(Array(lines.joined(separator: "\n").utf8))
            try await ConsoleFixture.run { fixture in
                let second = try await fixture.stack.start("carillon-registration", [:])
                let session = try await fixture.masterBrowser(of: fixture.app)
                var admin = Browser(second.url)
                for (name, value) in session.cookies { admin.set(name, value) }
                // Only the second replica is there to work on it.
                fixture.service.process.signal(SIGSTOP)
                let page = try await fixture.upload(
                    &admin,
                    "leancloud",
                    name: "_Installation.jsonl.gz",
                    content
                )
                let id = page.split(separator: "/").last.map(String.init) ?? ""
                #expect(
                    try await Self.act(&admin, fixture, page, ["do": "start"]).status == 303
                )
                let database = fixture.stack.database
                _ = try await eventually("some lines are imported") {
                    let records = try await database.query(
                        "SELECT records FROM imports WHERE id = \(id)"
                    )
                    return (records.first.flatMap { Int($0) } ?? 0) > 0 ? true : nil
                }
                // A service that stops gives the import away at once.
                #expect(await second.process.stop() == .status(0))
                #expect(
                    try await database.query(
                        """
                        SELECT u.runner IS NULL, u.task, i.state FROM import_uploads u
                        JOIN imports i ON i.id = u.import
                        """
                    ) == ["t|run|paused"]
                )
                let third = try await fixture.stack.start("carillon-registration", [:])
                _ = try await eventually("more lines are imported") {
                    try await database.query(
                        "SELECT 1 FROM imports WHERE id = \(id) AND state = 'running'"
                    )
                    .isEmpty ? nil : true
                }
                third.process.signal(SIGKILL)
                fixture.service.process.signal(SIGCONT)
                let done = try await Self.page(session, page, having: ">Finished<")
                #expect(done.contains("<dd>60,000</dd>") && done.contains("<dd>59,940</dd>"))
                let rows = try await database.query(
                    "SELECT count(*), count(DISTINCT object_id) FROM installations"
                )
                #expect(rows == ["59940|59940"])
            }
        }

        @Test("A paused import is stopped, and keeps what it has imported")
        func stopped() async throws {
            try await ConsoleFixture.run { fixture in
                var admin = try await fixture.operatorBrowser("admin")
                let page = try await fixture.upload(
                    &admin,
                    "csv",
                    name: "devices.csv",
                    Self.csv(200)
                )
                let paused = try await Self.act(&admin, fixture, page, ["do": "pause"])
                #expect(paused.status == 303)
                let question = try await admin.get(page + "/stop").text
                #expect(question.contains("What is imported stays."))
                #expect(try await Self.act(&admin, fixture, page + "/stop", [:]).status == 303)
                #expect(try await admin.get(page).text.contains(">Stopped<"))
                #expect(try await admin.get(page + "/stop").status == 409)
                let again = try await Self.act(&admin, fixture, page, ["do": "start"])
                #expect(again.status == 409)
                // Another app has no such import, and neither has a sender.
                let other = try await fixture.stack.makeApp()
                var stranger = try await fixture.masterBrowser(of: other)
                let id = page.split(separator: "/").last.map(String.init) ?? ""
                #expect(try await stranger.get("/console/\(other.id)/import/\(id)").status == 404)
                var sender = try await fixture.operatorBrowser("sender", name: "sen@example.com")
                #expect(try await sender.get(page).status == 403)
                #expect(try await !sender.get(fixture.home).text.contains(fixture.home + "/import"))
            }
        }

        @Test("Forms that no browser sends change nothing, and hostile names are text")
        func hostile() async throws {
            try await ConsoleFixture.run { fixture in
                var admin = try await fixture.operatorBrowser("admin")
                let (home, type) = (fixture.home, ConsoleFixture.formType)
                let token = try await fixture.formToken(&admin, of: fixture.app)
                let good = ConsoleFixture.form(
                    ConsoleFixture.importFields(token),
                    file: ("a.csv", Self.csv(3))
                )
                let cases: [(String, [UInt8], String, Int)] = [
                    ("no form", Array("hello".utf8), type, 400),
                    ("another boundary", good, type + "x", 400),
                    ("no boundary", good, "multipart/form-data", 400),
                    ("a cut form", Array(good.dropLast(10)), type, 400),
                    (
                        "no file",
                        ConsoleFixture.form(ConsoleFixture.importFields(token), file: nil), type,
                        400
                    ),
                    (
                        "the file first",
                        ConsoleFixture.form([], file: ("a.csv", Self.csv(3))), type, 403
                    ),
                    (
                        "no token",
                        ConsoleFixture.form(ConsoleFixture.importFields(""), file: ("a", [1])),
                        type, 403
                    ),
                    (
                        "a format that there is not",
                        ConsoleFixture.form(
                            ConsoleFixture.importFields(token, "xml"),
                            file: ("a", [1])
                        ), type, 400
                    ),
                    (
                        "no name",
                        ConsoleFixture.form(ConsoleFixture.importFields(token), file: ("", [1])),
                        type, 422
                    ),
                    (
                        "a path only",
                        ConsoleFixture.form(ConsoleFixture.importFields(token), file: ("../", [1])),
                        type, 422
                    ),
                    (
                        "nothing in it",
                        ConsoleFixture.form(ConsoleFixture.importFields(token), file: ("a", [])),
                        type, 422
                    ),
                ]
                for (name, body, type, status) in cases {
                    let answer = try await admin.post(home + "/import", body, type: type)
                    #expect(answer.status == status, "\(name): \(answer.text)")
                }
                let foreign = try await admin.post(
                    home + "/import",
                    good,
                    type: type,
                    ["Sec-Fetch-Site": "cross-site"]
                )
                #expect(foreign.status == 403)
                #expect(
                    try await fixture.stack.database.query("SELECT count(*) FROM imports") == ["0"]
                )
                // More than the limit is refused before it is sent.
                let claim = try await Self.claim(
                    1 << 31,
                    at: fixture.service.url,
                    home + "/import",
                    admin.cookieHeader
                )
                #expect(claim == 413)

                let hostile = ConsoleFixture.hostile
                let quoted = hostile.replacing("\"", with: "%22")
                let header =
                    "\"\(hostile.replacing("\"", with: "\"\""))\",token,os\nx,\(makeAPNsToken()),ios\n"
                let page = try await fixture.upload(
                    &admin,
                    "csv",
                    name: "../../etc/\(quoted)",
                    Array(header.utf8)
                )
                for path in [page, home + "/import", page + "/stop"] {
                    let text = try await admin.get(path).text
                    #expect(!text.contains("<script>") && !text.contains("<img"), "\(path)")
                    #expect(text.contains("img src=x"), "\(path)")
                }
                // A file of zeros that inflates to a GiB is one line, which is too long.
                let bomb = try Self.bomb()
                let bombed = try await fixture.upload(&admin, "leancloud", name: "b.gz", bomb)
                #expect(try await Self.act(&admin, fixture, bombed, ["do": "start"]).status == 303)
                let done = try await Self.page(admin, bombed, having: "line 1")
                #expect(done.contains("the record is longer than 1 MiB"))
            }
        }

        /// Returns gzip members that inflate to a GiB of zeros.
        private static func bomb() throws -> [UInt8] {
            let member = try Compression.gzip.compress([UInt8](repeating: 48, count: 64 << 20))
            return Array(repeating: member, count: 16).flatMap { $0 }
        }

        /// Sends only the head of a form, and returns the status.
        private static func claim(
            _ length: Int,
            at url: String,
            _ path: String,
            _ cookie: String
        ) async throws -> Int {
            let port = try #require(URLComponents(string: url)?.port)
            let head =
                "POST \(path) HTTP/1.1\r\nHost: localhost:\(port)\r\nContent-Length: \(length)\r\n"
                + "Content-Type: \(ConsoleFixture.formType)\r\nCookie: \(cookie)\r\nConnection: close\r\n\r\n"
            let socket = try LoopbackSocket(port: UInt16(port))
            defer { socket.close() }
            try socket.send(Array(head.utf8))
            let answer = try parse(try socket.receiveAll(), of: path)
            return answer.status
        }
    }
}

extension ConsoleFixture {
    static let formType = "multipart/form-data; boundary=----WebKitFormBoundaryAbC123"

    /// A form with a file, as a browser without the script sends it.
    static func form(
        _ fields: [(String, String)],
        file: (name: String, bytes: [UInt8])?
    ) -> [UInt8] {
        let boundary = "----WebKitFormBoundaryAbC123"
        var body: [UInt8] = []
        func add(_ head: String, _ content: [UInt8]) {
            body += Array("--\(boundary)\r\nContent-Disposition: form-data; \(head)\r\n\r\n".utf8)
            body += content + Array("\r\n".utf8)
        }
        for (name, value) in fields { add("name=\"\(name)\"", Array(value.utf8)) }
        if let file {
            add(
                "name=\"file\"; filename=\"\(file.name)\"\r\nContent-Type: text/csv",
                file.bytes
            )
        }
        return body + Array("--\(boundary)--\r\n".utf8)
    }

    static func importFields(_ token: String, _ format: String = "csv") -> [(String, String)] {
        [("token", token), ("format", format), ("existing", "newer")]
    }

    /// Uploads a file to import, and returns the address of its page.
    func upload(
        _ browser: inout Browser,
        _ format: String,
        name: String,
        _ bytes: [UInt8]
    ) async throws -> String {
        let token = try await formToken(&browser, of: app)
        let body = Self.form(Self.importFields(token, format), file: (name, bytes))
        let answer = try await browser.post(home + "/import", body, type: Self.formType)
        #expect(answer.status == 303, "\(answer.text)")
        return try #require(answer.header("location"))
    }
}
