import Foundation
import JSON
import Support
import Testing

/// A folder of `JAVA_CLIENTS`: a vendor's client with its own dependencies.
enum JavaClient: String, CaseIterable {
    case azure
    case cloudevents
    case cognitoV1 = "cognito-v1"
    case cognitoV2 = "cognito-v2"
    case firebase
    case leancloud
    case leancloudRealtime = "leancloud-realtime"
    case rudder
    case segment

    /// The class path: the client's folder, then the shared jars. Firebase's is complete.
    var classPath: [String] {
        let folder = TestEnvironment.javaClients ?? ""
        let own = "\(folder)/\(rawValue)/*"
        return self == .firebase ? [own] : [own, "\(folder)/common/*"]
    }

    /// The folder of its programs. Two versions of one client are never on one class path.
    var sources: String {
        scriptFile(self == .leancloudRealtime ? "Java/LeanCloudRealtime" : "Java")
    }

    /// Expects the folder to have the jars that `Java/clients.json` names.
    func expectVersions() throws {
        let file = try String(contentsOfFile: scriptFile("Java/clients.json"), encoding: .utf8)
        let jars = try #require(try JSONValue.parse(file)[rawValue]?.object)
        let folder = "\(TestEnvironment.javaClients ?? "")/\(rawValue)"
        for (artifact, version) in jars {
            let jar = "\(folder)/\(artifact)-\(version.string ?? "").jar"
            #expect(FileManager.default.fileExists(atPath: jar), "\(jar) is not there")
        }
    }
}

/// The classes of all programs of `Java/`, compiled by one `javac` for each folder at its first use.
private actor JavaClasses {
    static let shared = JavaClasses()
    private var compiling: [String: Task<String, any Error>] = [:]

    func folder(for client: JavaClient) async throws -> String {
        let sources = client.sources
        let task = compiling[sources] ?? Task { try await Self.compile(sources) }
        compiling[sources] = task
        return try await task.value
    }

    private static func compile(_ sources: String) async throws -> String {
        let name = URL(filePath: sources).lastPathComponent.lowercased()
        let classes = scriptFile("../../.carillon/\(name)-classes")
        try? FileManager.default.removeItem(atPath: classes)
        try FileManager.default.createDirectory(atPath: classes, withIntermediateDirectories: true)
        var files = try FileManager.default.contentsOfDirectory(atPath: sources)
            .filter { $0.hasSuffix(".java") }.map { "\(sources)/\($0)" }
        let shared = scriptFile("Java/Support.java")
        if !files.contains(shared) { files.append(shared) }
        let paths = JavaClient.allCases.filter { $0.sources == sources }.flatMap(\.classPath)
        _ = try await run(
            "javac",
            ["-encoding", "UTF-8", "-nowarn", "-d", classes, "-cp", paths.joined(separator: ":")]
                + files.sorted()
        )
        .successful("javac")
        return classes
    }
}

/// Runs a program of `Java/` with a client's class path, in a folder of its own, as some clients
/// write into the working directory.
func runJava(
    _ program: String,
    of client: JavaClient,
    _ scenarios: [String] = [],
    options: [String] = [],
    environment: [String: String]
) async throws -> ProgramAnswer {
    try client.expectVersions()
    let classes = try await JavaClasses.shared.folder(for: client)
    let folder = "/tmp/" + TestEnvironment.unique("carillon-java-")
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let paths = [classes] + client.classPath
    // The process is short: the first compiler is enough, and one thread of the collector.
    let machine = [
        "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dfile.encoding=UTF-8",
    ]
    return try await run(
        "/usr/bin/env",
        ["-C", folder, "java"] + machine + options
            + ["-cp", paths.joined(separator: ":"), program] + scenarios,
        environment: environment
    )
}

/// Runs a built program of `Go/`.
func runGo(
    _ program: String,
    _ scenario: String,
    _ environment: [String: String]
) async throws -> ProgramAnswer {
    let folder = try #require(TestEnvironment.goPrograms)
    return try await run("\(folder)/\(program)", [scenario], environment: environment)
}

extension ProgramAnswer {
    /// Expects that all checks passed and there was one: the last line of the output is
    /// `{"checked": …, "problems": …}`, and each line of the errors a failed check.
    func expectChecks(_ name: String) throws {
        if exit != .status(0) {
            Issue.record("\(name) ended with \(exit):\n\(errors.prefix(6000))")
        }
        let last = output.split(separator: "\n").last.map(String.init) ?? "{}"
        #expect((try JSONValue.parse(last)["checked"]?.integer ?? 0) > 0)
    }

    /// Returns the words after `first` of each line that begins with it.
    func lines(_ first: String) -> [[String]] {
        output.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
            .filter { $0.first == first }.map { Array($0.dropFirst()) }
    }
}
