import Foundation

/// A Postgres of one test's own, which may stop it, crash it and start it again.
///
/// It listens on a free port of 127.0.0.1 and stores its data in a temporary folder, which `remove`
/// deletes. Answered writes survive a crash of the process (`synchronous_commit` is on), but not of
/// the machine (`fsync` is off). Its processes end with the test's.
package final class PrivatePostgres: Sendable {
    package enum Stop: Sendable, CaseIterable {
        /// SIGINT: backends are stopped, and a last checkpoint is written.
        case fast
        /// SIGQUIT: backends abort; the next start recovers.
        case immediate
        /// SIGKILL of the postmaster: its backends notice by themselves.
        case kill
    }

    /// The folder of its programs: the newest version from 15 on; `nil` if it is not installed.
    package static let programs: String? = {
        let root = "/usr/lib/postgresql"
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        let newest = versions.compactMap { Int($0) }.filter { $0 >= 15 }.max()
        return newest.map { "\(root)/\($0)/bin" }
    }()

    /// A server's certificate and its key, in PEM. With one it accepts TLS from any client.
    package typealias Certificate = (certificatePEM: String, privateKeyPEM: String)

    package let port: Int
    package let url: String
    package let password: String
    private let programs: String
    private let folder: String
    private let settings: [String]
    private let certificate: Certificate?
    private let server = Current()

    private actor Current {
        var process: ChildProcess?
        func set(_ process: ChildProcess?) { self.process = process }
    }

    /// Makes a data folder and starts a server on it.
    ///
    /// - Parameters:
    ///   - settings: More of `name=value`; they override those here.
    ///   - certificate: `nil` for no TLS.
    /// - Returns: A server that accepts connections.
    /// - Throws: `TestFailure`.
    package static func start(
        settings: [String] = [],
        certificate: Certificate? = nil
    ) async throws -> PrivatePostgres {
        guard let programs else { throw TestFailure("no Postgres under /usr/lib/postgresql") }
        let folder = "/tmp/" + TestEnvironment.unique("carillon-postgres-")
        let server = PrivatePostgres(
            programs: programs,
            folder: folder,
            port: try freePort(),
            settings: settings,
            certificate: certificate
        )
        do {
            try await server.initialise()
            try await server.start()
        } catch {
            await server.remove()
            throw error
        }
        return server
    }

    private init(
        programs: String,
        folder: String,
        port: Int,
        settings: [String],
        certificate: Certificate?
    ) {
        self.programs = programs
        self.folder = folder
        self.port = port
        self.settings = settings
        self.certificate = certificate
        password = String(UInt64.random(in: .min ... .max), radix: 36)
        url = "postgresql://carillon:\(password)@127.0.0.1:\(port)/postgres?sslmode=disable"
    }

    /// Returns a URI with another choice of TLS, as `sslmode=require`.
    package func url(_ parameters: String) -> String {
        url.replacingOccurrences(of: "sslmode=disable", with: parameters)
    }

    private func initialise() async throws {
        try FileManager.default.createDirectory(
            atPath: folder,
            withIntermediateDirectories: false,
            attributes: [.posixPermissions: 0o700]
        )
        var files = ["password": password]
        if let certificate {
            files["server.crt"] = certificate.certificatePEM
            files["server.key"] = certificate.privateKeyPEM
        }
        for (name, text) in files {
            // Postgres rejects a key that others may read.
            let isWritten = FileManager.default.createFile(
                atPath: "\(folder)/\(name)",
                contents: Data(text.utf8),
                attributes: [.posixPermissions: 0o600]
            )
            guard isWritten else { throw TestFailure("\(folder)/\(name) cannot be written") }
        }
        if getuid() == 0 {
            _ = try await run("/bin/chown", ["-R", "postgres:", folder]).successful("chown")
        }
        let command = asPostgres([
            "\(programs)/initdb", "--pgdata=\(folder)/data", "--username=carillon",
            "--auth=scram-sha-256", "--pwfile=\(folder)/password", "--encoding=UTF8",
            "--locale=C.UTF-8", "--no-sync",
        ])
        _ = try await run(command[0], Array(command.dropFirst())).successful("initdb")
    }

    /// Returns the command under another user, as Postgres refuses to run as root. The change of
    /// user resets the signal for the parent's death, so it is set again.
    private func asPostgres(_ command: [String]) -> [String] {
        guard getuid() == 0 else { return command }
        let user = ["--reuid", "postgres", "--regid", "postgres", "--init-groups"]
        let again = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"]
        return ["/usr/bin/setpriv"] + user + ["--"] + again + command
    }

    private var tls: [String] {
        guard certificate != nil else { return [] }
        return [
            "ssl=on", "ssl_cert_file=\(folder)/server.crt", "ssl_key_file=\(folder)/server.key",
        ]
    }

    /// Starts it on the existing data, and returns when it accepts connections.
    package func start() async throws {
        let options =
            [
                "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off",
                "synchronous_commit=on", "full_page_writes=off", "shared_buffers=32MB",
                "max_connections=100",
            ] + tls + settings
        // Its log goes to standard error, while the test waits for lines of standard output.
        let command = asPostgres(
            [
                "/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", "\(programs)/postgres", "-D",
                "\(folder)/data", "-p", "\(port)",
            ] + options.flatMap { ["-c", $0] }
        )
        let process = try await ChildProcess.start(command[0], Array(command.dropFirst()))
        await server.set(process)
        _ = try await process.line("a server that is ready") {
            $0.contains("ready to accept connections")
        }
    }

    /// Returns when all of its processes have ended: they keep the pipe of its log open.
    package func stop(_ how: Stop) async {
        guard let process = await server.process else { return }
        switch how {
        case .fast: process.signal(SIGINT)
        case .immediate: process.signal(SIGQUIT)
        case .kill: process.signal(SIGKILL)
        }
        _ = await process.exit()
        await server.set(nil)
    }

    /// Stops all of its processes where they are (SIGSTOP): connections stay open, new ones are
    /// accepted by the kernel, and nothing is answered until `resume`.
    package func hang() async throws {
        // The server first, so that it makes no more processes.
        try await signalAll(SIGSTOP)
    }

    package func resume() async throws { try await signalAll(SIGCONT) }

    private func signalAll(_ number: Int32) async throws {
        guard let process = await server.process else { return }
        process.signal(number)
        let children = try await run("/usr/bin/pgrep", ["-P", "\(process.processID)"])
        for child in children.output.split(separator: "\n") {
            if let id = Int32(child) { _ = kill(id, number) }
        }
    }

    /// The lines of its log since the last start.
    package func log() async -> [String] { await server.process?.lines() ?? [] }

    /// Stops it and deletes its data.
    package func remove() async {
        try? await resume()
        await stop(.immediate)
        try? FileManager.default.removeItem(atPath: folder)
    }
}
