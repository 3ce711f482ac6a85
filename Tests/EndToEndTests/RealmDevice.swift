import Foundation
import JSON
import Support
import Testing

/// The official Realm client as a device: a process of the driver in `REALM_CLIENT`, which takes
/// commands and answers each with one line. Its files stay when it ends.
final class RealmDevice {
    let process: ChildProcess
    private let input: FileHandle
    private var asked = 0

    private init(_ process: ChildProcess, _ input: FileHandle) {
        (self.process, self.input) = (process, input)
    }

    /// Starts the client with the files in `folder`.
    static func start(in folder: String) async throws -> RealmDevice {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let classes = try await RealmClasses.shared.folder()
        let pipe = "\(folder)/commands-\(UUID().uuidString)"
        guard unsafe mkfifo(pipe, 0o600) == 0 else { throw TestFailure("mkfifo: \(errno)") }
        // Opened for both, so that neither side waits for the other.
        let descriptor = unsafe open(pipe, O_RDWR | O_CLOEXEC)
        guard descriptor >= 0 else { throw TestFailure("open: \(errno)") }
        let input = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        let paths = "\(TestEnvironment.realmClient ?? "")/*:\(classes)"
        let machine = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m"
        let process = try await ChildProcess.start(
            "/bin/sh",
            [
                "-c",
                "exec java \(machine) -cp '\(paths)' RealmClient --log '\(folder)/client.log' --level 4 <'\(pipe)'",
            ],
            environment: ["HOME": scriptFile("../../.carillon/realm-home")]
        )
        return RealmDevice(process, input)
    }

    /// Starts it, and opens its Realm as `user`.
    static func start(
        in folder: String,
        _ bench: IngestBench,
        appID: String? = nil,
        through proxy: RealmProxy? = nil,
        login: JSONObject? = ["provider": "anonymous"],
        schema: JSONValue = weatherSensor,
        async: Bool = false
    ) async throws -> RealmDevice {
        let device = try await start(in: folder)
        try await device.ask([
            "cmd": "app", "baseUrl": .string(proxy?.url ?? bench.service.url),
            "appId": .string(appID ?? bench.app.id), "dir": .string("\(folder)/data"),
            "fastReconnectMs": 1000,
        ])
        if let login { try await device.logIn(login) }
        try await device.openFile(schema: schema, async: async)
        return device
    }

    /// Signs in, and returns the user's id.
    @discardableResult
    func logIn(_ login: JSONObject) async throws -> String {
        var login = login
        login["cmd"] = "login"
        return try await ask(login)["user"]?.string ?? ""
    }

    /// Opens a file, which the further commands concern. The others stay open.
    func openFile(
        _ file: String = "default",
        schema: JSONValue = weatherSensor,
        async: Bool = false
    ) async throws {
        try await ask([
            "cmd": "open", "file": .string(file), "schema": schema, "async": .bool(async),
        ])
    }

    static let weatherSensor: JSONValue = [
        [
            "name": "WeatherSensor", "kind": "asymmetric", "pk": "_id",
            "props": [
                "_id": "objectId", "deviceId": "string?", "temperatureInFahrenheit": "float?",
                "barometricPressureInHg": "float?", "windSpeedInMph": "int?",
            ],
        ]
    ]

    // MARK: Commands

    private static func isReply(_ line: JSONValue) -> Bool {
        line["ok"] != nil || line["error"] != nil
    }

    /// Sends a command, and returns its answer.
    @discardableResult
    func ask(_ command: JSONObject, within limit: Duration = .seconds(60)) async throws -> JSONValue
    {
        let reply = try await reply(to: command, within: limit)
        guard reply["ok"] != nil else { throw TestFailure("\(command.text): \(reply.text)") }
        return reply
    }

    /// Sends a command, and returns its answer, which may be an error.
    func reply(
        to command: JSONObject,
        within limit: Duration = .seconds(60)
    ) async throws -> JSONValue {
        send(command)
        let number = asked
        return try await eventually("the answer to \(command.text)", within: limit) {
            let replies = process.events.filter(Self.isReply)
            if replies.count >= number { return replies[number - 1] }
            guard process.isRunning else { throw TestFailure("the client has ended") }
            return nil
        }
    }

    /// Sends a command whose answer is not waited for.
    func send(_ command: JSONObject) {
        asked += 1
        input.write(Data(command.bytes + [UInt8(ascii: "\n")]))
    }

    func write(_ objects: [JSONValue], class name: String = "WeatherSensor") async throws {
        try await ask(["cmd": "write", "class": .string(name), "objects": .array(objects)])
    }

    /// Writes objects whose `windSpeedInMph` is their number, each in a transaction of its own.
    ///
    /// - Parameters:
    ///   - count: The number of objects.
    ///   - first: The number of the first one.
    ///   - pause: Milliseconds after each.
    /// - Throws: `TestFailure` if the client refuses, or has ended.
    func writeMany(_ count: Int, first: Int = 0, pause: Int = 0) async throws {
        try await ask(Self.many(count, first: first, pause: pause), within: .seconds(120))
    }

    /// Begins to write them.
    func beginWriting(_ count: Int, first: Int = 0, pause: Int = 0) {
        send(Self.many(count, first: first, pause: pause))
    }

    private static func many(_ count: Int, first: Int, pause: Int) -> JSONObject {
        [
            "cmd": "writeMany", "class": "WeatherSensor", "count": JSONValue(count),
            "perTransaction": 1, "first": JSONValue(first), "idPrefix": "0123456789abcdef",
            "pauseMs": JSONValue(pause), "template": ["deviceId": "numbered"],
            "counter": "windSpeedInMph",
        ]
    }

    /// Waits until the server has acknowledged everything. A wait may end with an outage's error.
    func waitUpload(_ limit: Duration = .seconds(90)) async throws {
        let end = ContinuousClock.now + limit
        while true {
            let reply = try await reply(
                to: ["cmd": "waitUpload", "timeoutMs": 20_000],
                within: .seconds(60)
            )
            if reply["ok"] != nil { return }
            guard ContinuousClock.now < end else {
                throw TestFailure("not uploaded: \(reply.text)")
            }
        }
    }

    /// Ends the process at once; nothing is closed.
    func crash() async {
        send(["cmd": "crash"])
        _ = await process.exit()
    }

    func quit() async {
        send(["cmd": "quit"])
        _ = await process.exit()
    }

    /// Makes a random text, which cannot be compressed.
    static func text(of count: Int) -> String {
        var random = SystemRandomNumberGenerator()
        return String(
            (0..<count).map { _ in Character(UnicodeScalar(UInt8(33 + random.next() % 90))) }
        )
    }

    // MARK: Events

    /// The errors that its app was told.
    var syncErrors: [JSONValue] { process.events.filter { $0["event"]?.string == "syncError" } }

    /// Expects that nothing has harmed the client: no logout, no reset, no dead session, no crash.
    ///
    /// - Parameters:
    ///   - expected: How many errors its app was told; `nil`: any that are not fatal.
    ///   - location: Of the expectation.
    func expectUnharmed(errors expected: Int? = 0, at location: SourceLocation = #_sourceLocation) {
        let harm = process.events.filter { event in
            ["syncThreadError", "beforeClientReset", "afterClientReset"]
                .contains(event["event"]?.string ?? "") || event["fatal"]?.bool == true
        }
        #expect(harm.isEmpty, "\(harm.map(\.text))", sourceLocation: location)
        guard let expected else { return }
        #expect(syncErrors.count == expected, "\(syncErrors.map(\.text))", sourceLocation: location)
    }
}

/// The classes of the driver, compiled once, and its native library.
private actor RealmClasses {
    static let shared = RealmClasses()
    private var compiling: Task<String, any Error>?

    func folder() async throws -> String {
        let task = compiling ?? Task { try await Self.compile() }
        compiling = task
        return try await task.value
    }

    private static func compile() async throws -> String {
        let sources = TestEnvironment.realmClient ?? ""
        let classes = scriptFile("../../.carillon/realm-classes")
        let home = scriptFile("../../.carillon/realm-home")
        for folder in [classes, home] {
            try FileManager.default.createDirectory(
                atPath: folder,
                withIntermediateDirectories: true
            )
        }
        _ = try await run(
            "javac",
            [
                "-encoding", "UTF-8", "-nowarn", "-d", classes, "-cp", "\(sources)/*",
                "\(sources)/RealmClient.java", "\(sources)/Json.java",
            ]
        )
        .successful("javac")
        // The first start unpacks the native library, which another start would read half-written.
        _ = try await run(
            "java",
            ["-cp", "\(sources)/*:\(classes)", "RealmClient"],
            environment: ["HOME": home]
        )
        .successful("the first start of the client")
        return classes
    }
}
