import Compression
import Foundation
import InstallationStorage
import JSON
import PushCore
import Testing

@testable import Importing

@Suite("Reading exports", .timeLimit(.minutes(1)))
struct ImportReaderTests {
    private static let now = Instant(iso8601: "2026-11-28T12:00:00Z") ?? .latest
    private static let token = String(repeating: "ab", count: 32)

    /// Runs the body with a file of these bytes.
    private func withFile<Value>(
        _ bytes: [UInt8],
        _ body: (String) async throws -> Value
    ) async throws -> Value {
        let url = FileManager.default.temporaryDirectory
            .appending(path: "carillon-import-\(UUID().uuidString)")
        try Data(bytes).write(to: url)
        defer { try? FileManager.default.removeItem(at: url) }
        return try await body(url.path(percentEncoded: false))
    }

    /// Reads a whole file; returns its lines with an installation or the reason of the rejection.
    private func read(
        _ format: ImportFormat,
        _ bytes: [UInt8],
        options: ImportOptions = ImportOptions(),
        from position: ImportPosition = ImportPosition()
    ) async throws -> (records: [ImportReader.Record], failure: ImportError?) {
        try await withFile(bytes) { path in
            let reader = try await ImportReader(
                .file(path),
                format: format,
                app: "shop",
                options: options,
                from: position,
                now: Self.now
            )
            var records: [ImportReader.Record] = []
            while true {
                let batch = await reader.batch()
                records += batch.records
                if batch.isLast || batch.failure != nil { return (records, batch.failure) }
            }
        }
    }

    private func one(_ format: ImportFormat, _ text: String) async throws -> ImportedInstallation {
        let found = try await read(format, Array(text.utf8))
        #expect(found.failure == nil)
        let record = try #require(found.records.first)
        return try record.content.get()
    }

    private func reasons(_ format: ImportFormat, _ bytes: [UInt8]) async throws -> [String?] {
        try await read(format, bytes).records.map { record in
            switch record.content {
            case .success: nil
            case .failure(let rejection): rejection.reason
            }
        }
    }

    @Test("A LeanCloud object keeps its id, its times and its fields")
    func leanCloud() async throws {
        let row = try await one(
            .leancloud,
            """
            {"objectId":"5f0c2b1e4a7d9c0006b8e3f1","createdAt":"2020-07-13T09:10:11.123Z",\
            "updatedAt":"2026-01-02T03:04:05.006Z","deviceType":"ios","deviceToken":"\(Self.token)",\
            "channels":["news"],"badge":3,"timeZone":"Asia/Shanghai","valid":false,"city":"Oslo",\
            "apnsTopic":"com.example.shop","nickname":null,\
            "owner":{"__type":"Pointer","className":"_User","objectId":"u1"}}
            """
        )
        let device = row.installation
        #expect(device.objectID == "5f0c2b1e4a7d9c0006b8e3f1" && row.hasOwnID)
        #expect(device.createdAt.iso8601 == "2020-07-13T09:10:11.123Z")
        #expect(device.updatedAt.iso8601 == "2026-01-02T03:04:05.006Z")
        #expect(device.platform == .apns && device.token == Self.token)
        #expect(device.identity == "u1" && device.channels == ["news"] && device.badge == 3)
        #expect(!device.isValid && device.invalidReason == Installation.inactiveReason)
        #expect(device.fields["city"] == "Oslo" && device.fields["nickname"] == nil)
        #expect(row.rule == .leanCloud && row.changedAt == device.updatedAt)
        #expect(row.uses.contains(FieldUse(name: "city", type: .string)))
        let android = try await one(
            .leancloud,
            #"{"objectId":"a1","createdAt":{"__type":"Date","iso":"2020-07-13T09:10:11Z"},"installationId":"i"}"#
        )
        #expect(android.installation.deviceType == "android")
        #expect(android.installation.platform == .connection && android.installation.isValid)
    }

    @Test("A document of mongoexport becomes Parse's object")
    func parse() async throws {
        let row = try await one(
            .parse,
            """
            {"_id":"Zx81pQ","_created_at":{"$date":"2016-05-04T03:02:01.005Z"},\
            "_updated_at":{"$date":{"$numberLong":"1700000000123"}},"_rperm":["*"],"_wperm":[],\
            "_acl":{"*":{"r":true}},"deviceType":"android","pushType":"gcm","deviceToken":"APA91b",\
            "installationId":"AA-BB","_p_user":"_User$u9","level":{"$numberInt":"4"},\
            "seen":{"$date":1700000000000},"channels":["user:1","news.sport"],\
            "icon":{"$binary":{"base64":"AQI=","subType":"00"}}}
            """
        )
        let device = row.installation
        #expect(device.objectID == "Zx81pQ" && device.platform == .fcm && device.token == "APA91b")
        #expect(device.createdAt.iso8601 == "2016-05-04T03:02:01.005Z")
        #expect(device.updatedAt.milliseconds == 1_700_000_000_123)
        #expect(device.installationID == "aa-bb" && device.identity == "u9")
        #expect(device.channels == ["user:1", "news.sport"])
        #expect(device.fields["ACL"] == ["*": ["read": true]])
        #expect(device.fields["level"] == 4)
        #expect(
            device.fields["seen"] == ["__type": "Date", "iso": "2023-11-14T22:13:20.000Z"]
        )
        #expect(device.fields["icon"] == ["__type": "Bytes", "base64": "AQI="])
        #expect(row.rule == .parse(callerInstallationID: nil, isMaster: true))
        let list = try await read(
            .parse,
            Array("[\(Self.parseLine("a")),\n\(Self.parseLine("b"))]".utf8)
        )
        #expect(try list.records.map { try $0.content.get().installation.objectID } == ["a", "b"])
    }

    private static func parseLine(_ id: String) -> String {
        #"{"_id":"\#(id)","deviceType":"ios","deviceToken":"\#(token)"}"#
    }

    @Test("An endpoint of Amazon SNS has the platform of its ARN")
    func sns() async throws {
        func endpoint(_ platform: String, _ token: String, _ enabled: String) -> String {
            """
            {"EndpointArn": "arn:aws:sns:eu-west-1:123456789012:endpoint/\(platform)/shop/e-\(platform)",
             "Attributes": {"Enabled": "\(enabled)", "Token": "\(token)", "CustomUserData": "u=7"}}
            """
        }
        let file = """
            {"Endpoints": [\(endpoint("APNS", Self.token, "true")),
              \(endpoint("APNS_SANDBOX", Self.token, "false")), \(endpoint("GCM", "f:1", "true")),
              \(endpoint("ADM", "x", "true"))], "NextToken": "t"}
            """
        let found = try await read(.sns, Array(file.utf8)).records
        #expect(found.count == 4)
        let rows = found.prefix(3).compactMap { try? $0.content.get().installation }
        #expect(rows.map(\.objectID) == ["e-APNS", "e-APNS_SANDBOX", "e-GCM"])
        #expect(rows.map(\.environment) == [.production, .sandbox, .none])
        #expect(rows.map(\.isValid) == [true, false, true])
        #expect(rows[1].invalidReason == "EndpointDisabled" && rows[2].platform == .fcm)
        #expect(rows[0].fields["customUserData"] == "u=7")
        #expect(
            try await reasons(.sns, Array(file.utf8)).last
                == "the platform of EndpointArn is not supported"
        )
    }

    @Test("An Azure registration or installation is one of Azure's surface")
    func azure() async throws {
        let name = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
        func registration(_ id: String, tags: String, template: String = "") -> String {
            let kind = template.isEmpty ? "Apple" : "AppleTemplate"
            return "<\(kind)RegistrationDescription xmlns=\"\(name)\"><ETag>3</ETag>"
                + "<ExpirationTime>9999-12-31T23:59:59.9999999Z</ExpirationTime>"
                + "<RegistrationId>\(id)</RegistrationId><Tags>\(tags)</Tags>"
                + "<DeviceToken>\(Self.token.uppercased())</DeviceToken>\(template)"
                + "</\(kind)RegistrationDescription>"
        }
        let template = #"<BodyTemplate><![CDATA[{"aps":{"alert":"$(m)"}}]]></BodyTemplate>"#
        let installation = """
            {"installationId":"i-2","platform":"fcmv1","pushChannel":"f:2","userId":"ann","tags":["a"],\
            "templates":{"t":{"body":"{\\"data\\":{\\"m\\":\\"$(m)\\"}}"}}}
            """
        let lines = [
            registration("7-1", tags: "news,user:1"),
            registration("7-2", tags: "news", template: template),
            registration("7-3", tags: "$InstallationId:{phone-1},$UserId:{bob},x"), installation,
            registration("7-4", tags: "$InstallationId:{phone-1},t", template: template),
            registration("7-5", tags: "no good"), "<a",
            #"{"installationId":"i","platform":"palm"}"#,
        ]
        let bytes = Array(lines.joined(separator: "\n").utf8)
        let rows = try await read(.azure, bytes).records.prefix(4).map { try $0.content.get() }
        #expect(rows.allSatisfy { $0.rule == .azure && !$0.hasOwnID })
        #expect(rows.map(\.installation.installationID) == ["7-1", "7-2", "phone-1", "i-2"])
        #expect(rows.map(\.installation.isTemplateOnly) == [false, true, false, false])
        #expect(rows[0].installation.channels == ["news", "user:1"])
        #expect(rows[0].installation.token == Self.token)
        #expect(rows[2].installation.identity == "bob" && rows[2].installation.channels == ["x"])
        #expect(rows[3].installation.platform == .fcm && rows[3].templateNames == ["t"])
        #expect(
            try await reasons(.azure, bytes).suffix(4) == [
                "the template of an installation must be in its installation",
                "a tag is 1 to 120 letters, digits and _ @ # . : -", "invalid XML",
                "unknown platform",
            ]
        )
    }

    @Test("Hostile records are rejected, each with its reason, and never with a value of theirs")
    func hostile() async throws {
        let deep = String(repeating: "[", count: 40) + String(repeating: "]", count: 40)
        let records: [(String, String)] = [
            (#"{"objectId":"a","deviceType":"ios""#, "invalid JSON"),
            (#"{"objectId":"a","x":\#(deep)}"#, "invalid JSON: nested too deeply"),
            ("[1]", "not a JSON object"), ("7", "not a JSON object"),
            (#"{"deviceType":"ios"}"#, "objectId is missing"),
            (#"{"objectId":7,"deviceType":"ios"}"#, "objectId is missing"),
            (#"{"objectId":"a/../b","deviceType":"ios"}"#, "objectId must be"),
            (#"{"objectId":"a"}"#, "deviceType must be given"),
            (#"{"objectId":"a","deviceType":["ios"]}"#, "deviceType must be a string"),
            (#"{"objectId":"a","deviceType":"ios","channels":"s3cret"}"#, "channels must be"),
            (#"{"objectId":"a","deviceType":"ios","channels":["s3cret!"]}"#, "a channel's name"),
            (#"{"objectId":"a","deviceType":"ios","badge":"s3cret"}"#, "badge must be"),
            (
                #"{"objectId":"a","deviceType":"ios","deviceToken":"s3cret-token"}"#,
                "the token cannot"
            ),
            (#"{"objectId":"a","deviceType":"ios","a-b":1}"#, "a field's name"),
            (#"{"objectId":"a","deviceType":"ios","x":{"$y":1}}"#, "contains '$'"),
            (
                #"{"objectId":"a","deviceType":"ios","x":{"__type":"Date","iso":"s3cret"}}"#,
                "x: expected"
            ),
            (#"{"objectId":"a","deviceType":"ios","x":"a\u0000"}"#, "x must be"),
            (
                #"{"objectId":"a","deviceType":"ios","updatedAt":"s3cret"}"#,
                "updatedAt must be a time"
            ),
            (
                #"{"objectId":"a","deviceType":"ios","updatedAt":"2099-01-01T00:00:00Z"}"#,
                "in the future"
            ),
            (#"{"objectId":"a","deviceType":"ios","x":1e999999999999}"#, "x must be"),
        ]
        let bytes = Array((records.map(\.0) + [""]).joined(separator: "\n").utf8)
        let found = try await reasons(.leancloud, bytes)
        try #require(found.count == records.count)
        for (reason, (record, expected)) in zip(found, records) {
            #expect(reason?.contains(expected) == true, "\(record): \(reason ?? "accepted")")
            #expect(reason?.contains("s3cret") != true)
        }
        let broken =
            Array(#"{"objectId":"a","deviceType":""#.utf8) + [0xff, 0xfe] + Array("\"}\n".utf8)
        #expect(try await reasons(.leancloud, broken) == ["invalid JSON: expected valid UTF-8"])
        let long = #"{"objectId":"a","x":""# + String(repeating: "y", count: 1 << 20) + "\"}\n"
        let line = #"{"objectId":"b","deviceType":"ios"}"#
        #expect(
            try await reasons(.leancloud, Array((long + line).utf8))
                == ["the record is longer than 1 MiB", nil]
        )
        // Random bytes have no valid record.
        let noise = (0..<200_000).map { _ in UInt8.random(in: 0...255) }
        for format in [ImportFormat.leancloud, .parse, .sns, .azure] {
            let read = try? await self.read(format, noise)
            #expect(read?.records.allSatisfy { (try? $0.content.get()) == nil } ?? true)
        }
    }

    @Test("A gzip file is read as its content, from any record on")
    func gzip() async throws {
        let lines = (0..<3000).map { number in
            #"{"objectId":"id\#(number)","deviceType":"web","installationId":"w\#(number)"}"#
        }
        let plain = Array(lines.joined(separator: "\n").utf8)
        // Two members, one after the other.
        let half = plain.count / 2
        let packed =
            try Compression.gzip.compress(Array(plain[..<half]))
            + Compression.gzip.compress(Array(plain[half...]))
        let ids = lines.indices.map { "id\($0)" }
        for bytes in [plain, packed] {
            let all = try await read(.leancloud, bytes).records
            #expect(try all.map { try $0.content.get().installation.objectID } == ids)
        }
        let before = lines[..<2345].reduce(0) { $0 + $1.utf8.count + 1 }
        for bytes in [plain, packed] {
            let rest = try await read(
                .leancloud,
                bytes,
                from: ImportPosition(bytes: before, line: 2346)
            ).records
            #expect(rest.count == 655 && rest.first?.line == 2346)
            #expect(try rest.first?.content.get().installation.objectID == "id2345")
        }
        // The records before the damage are read.
        let cut = try await read(.leancloud, Array(packed.dropLast(9)))
        #expect(cut.failure?.kind == .broken && !cut.records.isEmpty)
    }

    @Test("A header with a byte order mark and mapped columns, continued at a record")
    func csv() async throws {
        let text =
            "\u{FEFF}Token,Kind,\"Full\nname\"\r\n\(Self.token),ios,\"A\r\nB\"\r\nf:2,fcm,C\r\n"
        let options = ImportOptions(columns: ["Kind": "deviceType", "Full\nname": "fullName"])
        let all = try await read(.csv, Array(text.utf8), options: options).records
        #expect(all.map(\.line) == [3, 5])
        let rows = try all.map { try $0.content.get().installation }
        #expect(rows.map(\.platform) == [.apns, .fcm])
        #expect(rows.map { $0.fields["fullName"] } == ["A\r\nB", "C"])
        let start = text.utf8.count - "f:2,fcm,C\r\n".utf8.count
        let rest = try await read(
            .csv,
            Array(text.utf8),
            options: options,
            from: ImportPosition(bytes: start, line: 5)
        ).records
        #expect(try rest.map { try $0.content.get().installation.token } == ["f:2"])
        await #expect(throws: ImportError.self) { _ = try await read(.csv, []) }
        await #expect(throws: ImportError.self) {
            _ = try await read(.parse, Array("{}".utf8), options: options)
        }
    }
}
