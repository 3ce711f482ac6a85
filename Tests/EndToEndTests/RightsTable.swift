import Cryptography
import Foundation
import JSON
import Support
import Testing

/// The table of access rights: a row for each route, a column for each credential, the status of
/// the response in each cell.
struct RightsTable {
    /// A valid or invalid credential of a caller.
    struct Credential {
        let name: String
        let about: String
        /// Whether it is for the app whose clients have every right that a setting can give, or for
        /// the one with the default rights.
        var isOpen = false
        /// The column whose responses have every member.
        var fullest: String?
        let headers: [String: String]
    }

    /// The request of a route.
    struct Question {
        var path: String
        var headers: [String: String] = [:]
        var body: [UInt8] = []
    }

    let credentials: [Credential]
    private let head: String
    private(set) var rows: [(action: String, cells: [String])] = []

    /// - Parameters:
    ///   - credentials: The columns.
    ///   - head: The text of the file before the table; `nil` for registration's.
    init(_ credentials: [Credential], head: String? = nil) {
        self.credentials = credentials
        self.head = head ?? Self.registrationHead
    }

    mutating func add(_ action: String, _ cells: [String]) { rows.append((action, cells)) }

    /// Returns the routes that the service lists at its start; one with a slash at the end counts
    /// as the same.
    static func routes(of service: Stack.Service) -> [String] {
        var seen: Set<String> = []
        return service.process.events.compactMap { event -> String? in
            guard event["message"] == "route", let route = event["http.route"]?.string,
                !route.hasSuffix("/"),
                !route.hasSuffix(" /parse/*rest")
                    || route.hasPrefix("OPTIONS"), seen.insert(route).inserted
            else { return nil }
            return route
        }
    }

    // MARK: As text

    /// Expects it to equal a file beside this one, or writes that file if a variable says so.
    func compare(with name: String) throws {
        let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: name)
        if ProcessInfo.processInfo.environment["CARILLON_RENEW_RIGHTS"] == "1" {
            try text.write(to: file, atomically: true, encoding: .utf8)
            return
        }
        let kept = try String(contentsOf: file, encoding: .utf8)
        let (old, new) = (kept.split(separator: "\n"), text.split(separator: "\n"))
        let changes = new.difference(from: old).map { change in
            switch change {
            case .insert(_, let line, _): "+ \(line)"
            case .remove(_, let line, _): "- \(line)"
            }
        }
        #expect(
            changes.isEmpty,
            """
            \(changes.joined(separator: "\n"))
            Who may do what has changed. Where that is meant, run this test with \
            CARILLON_RENEW_RIGHTS=1, and commit Tests/EndToEndTests/\(name).
            """
        )
    }

    /// Methods of one path with the same cells share a line.
    var text: String {
        var lines: [(methods: [String], path: String, cells: [String])] = []
        for row in rows {
            let parts = row.action.split(separator: " ", maxSplits: 1).map(String.init)
            if let place = lines.firstIndex(where: { $0.path == parts[1] && $0.cells == row.cells })
            {
                lines[place].methods.append(parts[0])
            } else {
                lines.append(([parts[0]], parts[1], row.cells))
            }
        }
        let titles = credentials.indices.map { "\($0 + 1)" }
        let labels = lines.map { "`\($0.methods.joined(separator: ", ")) \($0.path)`" }
        let width = labels.map(\.count).max() ?? 0
        func line(_ label: String, _ cells: [String], _ blank: Character = " ") -> String {
            let first = label + String(repeating: blank, count: max(0, width - label.count))
            let rest = cells.map { $0 + String(repeating: blank, count: max(0, 4 - $0.count)) }
            return "| " + ([first] + rest).joined(separator: " | ") + " |"
        }
        var result = head
        for (number, credential) in credentials.enumerated() {
            result += "\(number + 1). \(credential.about)\n"
        }
        result +=
            "\n" + line("", titles) + "\n" + line("---", titles.map { _ in "---" }, "-") + "\n"
        for (number, row) in lines.enumerated() {
            result += line(labels[number], row.cells) + "\n"
        }
        return result
    }

    private static let registrationHead = """
        # Who may do what

        Made by the test `EndToEndTests.RightsTableTests`, which asks the built registration service
        for every route that it has, by every way to say who calls, and compares the answers with this
        file. With `CARILLON_RENEW_RIGHTS=1` it writes the file again: look at what changes.

        A cell is the answer's status. A `-` behind it: the answer shows less than the master key gets
        to see. What is asked for is there and belongs to the app *shop* (columns with *open*: to the
        app *open*, whose settings `client-push`, `client-find` and `client-delete` are on; shop has
        the defaults, but for `signature-max-age=600`). What a body must be, it is, so that 400 never
        hides who may; 405 is a POST that is there for browsers' forms alone.


        """
}

/// A phone, a person and a push of one app, as targets of the requests.
struct RightsFixture {
    let app: Stack.App
    let url: String
    private(set) var installation = ""
    private(set) var installationID = ""
    private(set) var identity = ""
    private(set) var push = ""
    private(set) var schedule = ""
    private(set) var hubMessage = ""
    private(set) var hubSchedule = ""
    private(set) var hubRegistration = ""

    init(_ app: Stack.App, _ url: String) async throws {
        (self.app, self.url) = (app, url)
        try await renew()
    }

    /// Makes new ones, as the earlier ones may be deleted.
    mutating func renew() async throws {
        installationID = TestEnvironment.unique("phone-")
        let token = makeAPNsToken()
        _ = try await send(
            "PUT",
            "/\(app.id)/installations/\(installationID)",
            hubHeaders,
            [
                "installationId": .string(installationID), "platform": "apns",
                "pushChannel": .string(token), "tags": ["news"],
            ]
        )
        let found = try await send(
            "POST",
            "/1.1/installations",
            app.masterHeaders,
            ["installationId": .string(installationID), "deviceType": "ios", "note": "n"]
        )
        installation = try text(found, "objectId")
        let person = try await send(
            "POST",
            "/1.1/users",
            app.masterHeaders,
            [
                "username": .string(TestEnvironment.unique("ada-")),
                "email": .string(TestEnvironment.unique("ada-") + "@example.com"),
            ]
        )
        identity = try text(person, "objectId")
        let time = ISO8601DateFormatter().string(from: Date().addingTimeInterval(86_400))
        let sent = try await send(
            "POST",
            "/1.1/push",
            app.masterHeaders,
            [
                "where": ["note": "nobody's"], "data": ["alert": "x"],
                "push_time": .string(time),
            ]
        )
        push = try text(sent, "objectId")
        let waiting = try await send(
            "GET",
            "/1.1/scheduledPushMessages?limit=1000",
            app.masterHeaders,
            nil
        )
        let own = waiting.json?["results"]?.array?.first {
            $0["push_msg"]?["id"] == .string(push)
        }
        schedule = "\(own?["id"]?.integer ?? 0)"
        hubMessage = try id(
            of: try await send("POST", "/\(app.id)/messages", hubMessageHeaders, ["aps": [:]])
        )
        let registration = try await http(
            "POST",
            "\(url)/\(app.id)/registrations",
            headers: hubHeaders.merging(Self.hubEntryHeaders) { $1 },
            bytes: Self.hubEntry
        )
        guard let found = registration.text.split(separator: "<RegistrationId>").last else {
            throw TestFailure("no registration: \(registration.status) \(registration.text)")
        }
        hubRegistration = String(found.prefix { $0 != "<" })
        hubSchedule = try id(
            of: try await send(
                "POST",
                "/\(app.id)/schedulednotifications",
                hubMessageHeaders.merging(["ServiceBusNotification-ScheduleTime": time]) { $1 },
                ["aps": [:]]
            )
        )
    }

    private var hubHeaders: [String: String] {
        ["Authorization": sharedAccessSignature("http://127.0.0.1/", key: app.masterKey)]
    }

    private var hubMessageHeaders: [String: String] {
        hubHeaders.merging(Self.hubSendHeaders) { $1 }
    }

    static let hubEntryHeaders = ["Content-Type": "application/atom+xml;type=entry;charset=utf-8"]

    /// An entry with a new phone each time.
    static var hubEntry: [UInt8] {
        Array(
            """
            <entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">
            <AppleRegistrationDescription
            xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><Tags>news</Tags>
            <DeviceToken>\(makeAPNsToken())</DeviceToken></AppleRegistrationDescription></content></entry>
            """.utf8
        )
    }

    static let hubSendHeaders = [
        "ServiceBusNotification-Format": "apple", "ServiceBusNotification-Tags": "nobody",
    ]

    private func send(
        _ method: String,
        _ path: String,
        _ headers: [String: String],
        _ body: JSONValue?
    ) async throws -> HTTPAnswer {
        let answer = try await http(method, url + path, headers: headers, body: body)
        guard answer.status < 300 else {
            throw TestFailure("\(method) \(path): \(answer.status) \(answer.text)")
        }
        return answer
    }

    private func text(_ answer: HTTPAnswer, _ field: String) throws -> String {
        guard let text = answer.json?[field]?.string else {
            throw TestFailure("no \(field) in \(answer.text)")
        }
        return text
    }

    private func id(of sent: HTTPAnswer) throws -> String {
        let path = sent.header("location")?.prefix { $0 != "?" } ?? ""
        guard let id = path.split(separator: "/").last else { throw TestFailure("no location") }
        return String(id)
    }
}

extension RightsFixture {
    /// Returns a request of a route that could be answered with 2xx.
    func question(_ method: String, _ pattern: String) -> RightsTable.Question {
        var question = RightsTable.Question(path: path(pattern))
        if let body = body(method, pattern) {
            question.body = body.bytes
            question.headers["Content-Type"] = "application/json"
        }
        switch (method, pattern) {
        case ("POST", "/:hub/messages"):
            question.headers.merge(Self.hubSendHeaders) { $1 }
        case ("POST", "/:hub/messages/$batch"):
            question.headers.merge([
                "ServiceBusNotification-Format": "apple",
                "Content-Type": "multipart/mixed; boundary=\"b\"",
            ]) { $1 }
            let parts = [
                ("notification", #"{"aps":{}}"#), ("devices", "[\"\(makeAPNsToken())\"]"),
            ].map { name, text in
                "--b\r\nContent-Type: application/json\r\n"
                    + "Content-Disposition: inline; name=\(name)\r\n\r\n\(text)\r\n"
            }
            question.body = Array((parts.joined() + "--b--").utf8)
            question.path += "?direct"
        case ("POST", "/:hub/schedulednotifications"):
            let time = Date().addingTimeInterval(3600)
            question.headers.merge(Self.hubSendHeaders) { $1 }
            question.headers["ServiceBusNotification-ScheduleTime"] =
                ISO8601DateFormatter().string(from: time)
        case ("POST", "/:hub/registrations"), ("PUT", "/:hub/registrations/:id"):
            question.headers.merge(Self.hubEntryHeaders) { $1 }
            question.body = Self.hubEntry
        case ("DELETE", "/:hub/registrations/:id"): question.headers["If-Match"] = "*"
        case (_, "/1.1/cloudQuery"):
            question.path += "?cql=select%20*%20from%20_Installation%20limit%205"
        case (_, "/v1/notifications/:id/explain"):
            question.path += "?installation=\(installation)"
        case (_, "/v1/route"), (_, "/2/route"): question.path += "?appId=\(app.id)"
        case ("POST", "/1.1/stats/collect"), ("POST", "/1.1/stats/open/collect"):
            question.headers["Content-Type"] = "application/json"
            question.body = Array("{}".utf8)
        default: break
        }
        return question
    }

    private func path(_ pattern: String) -> String {
        var path = pattern
        for (name, value) in [
            (":hub", app.id), (":app", app.id), (":identity", identity), (":tag", "news"),
            ("*rest", "anything"),
            (":class", pattern.contains("/scan/") ? "_Installation" : "Other"),
            (":id", id(pattern)),
        ] {
            path = path.replacing(name, with: value)
        }
        return path
    }

    private func id(_ pattern: String) -> String {
        switch pattern {
        case _ where pattern.contains("_Notification"), _ where pattern.contains("_PushStatus"),
            _ where pattern.lowercased().contains("/notifications/:id"):
            push
        case "/1.1/scheduledPushMessages/:id": schedule
        case "/:hub/messages/:id": hubMessage
        case "/:hub/schedulednotifications/:id": hubSchedule
        case "/:hub/installations/:id": installationID
        case "/:hub/registrations/:id": hubRegistration
        case _ where pattern.lowercased().contains("installation"): installation
        case _ where pattern.lowercased().contains("user"): identity
        default: "1"
        }
    }

    private func body(_ method: String, _ pattern: String) -> JSONValue? {
        guard ["POST", "PUT", "PATCH"].contains(method) else { return nil }
        switch pattern {
        case "/1.1/push": return ["where": ["note": "nobody's"], "data": ["alert": "x"]]
        case "/parse/push": return ["where": ["note": "nobody's"], "data": ["alert": "x"]]
        case "/1.1/push/devices":
            return [
                "device_type": "android", "device_ids": ["nobody's"], "data": ["alert": "x"],
            ]
        case _ where pattern.contains("batch"): return ["requests": []]
        case "/:hub/installations/:id":
            guard method == "PUT" else {
                return [["op": "add", "path": "/tags", "value": "more"]]
            }
            return [
                "installationId": .string(installationID), "platform": "apns",
                "pushChannel": .string(makeAPNsToken()),
            ]
        case _ where pattern.hasPrefix("/:hub/"): return ["aps": [:]]
        case _ where method == "POST" && pattern.hasSuffix("nstallations"),
            _ where method == "POST" && pattern.hasSuffix("_Installation"):
            return [
                "deviceType": "android", "installationId": .string(TestEnvironment.unique("new-")),
            ]
        case _ where method == "POST" && pattern.lowercased().hasSuffix("user"),
            _ where method == "POST" && pattern.hasSuffix("users"):
            return ["username": .string(TestEnvironment.unique("new-"))]
        default: return ["note": "other"]
        }
    }
}
