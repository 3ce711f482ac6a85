import Foundation
import Observability

/// The part of `ChildProcess` that blocks and makes system calls, on one thread.
struct SpawnedProcess {
    let processID: Int32
    private let output: Int32
    private let errors: Int32

    /// A child inherits the descriptors that are open when it starts, so one starts at a time:
    /// otherwise it could keep another's pipe open.
    private static let starting = Lock()

    static func start(
        _ command: [String],
        environment: [String],
        input: [UInt8]
    ) throws -> SpawnedProcess {
        try starting.withLock {
            try SpawnedProcess(command, environment: environment, input: input)
        }
    }

    private init(_ command: [String], environment: [String], input: [UInt8]) throws {
        let outputPipe = try Self.pipe()
        let errorPipe = try Self.pipe()
        let inputFile = try Self.file(holding: input)
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe posix_spawn_file_actions_destroy(&actions) }
        unsafe posix_spawn_file_actions_adddup2(&actions, inputFile, 0)
        unsafe posix_spawn_file_actions_adddup2(&actions, outputPipe.write, 1)
        unsafe posix_spawn_file_actions_adddup2(&actions, errorPipe.write, 2)
        let arguments = unsafe command.map { unsafe strdup($0) } + [nil]
        let variables = unsafe environment.map { unsafe strdup($0) } + [nil]
        defer {
            unsafe (arguments + variables).forEach { unsafe free($0) }
            for descriptor in [inputFile, outputPipe.write, errorPipe.write] { close(descriptor) }
        }
        var processID: Int32 = 0
        let status = unsafe posix_spawn(
            &processID,
            command[0],
            &actions,
            nil,
            arguments,
            variables
        )
        guard status == 0 else {
            close(outputPipe.read)
            close(errorPipe.read)
            throw TestFailure("cannot start \(command.joined(separator: " ")): error \(status)")
        }
        self.processID = processID
        output = outputPipe.read
        errors = errorPipe.read
    }

    /// Passes on every line of both streams until both are closed.
    func readLines(_ line: (ChildProcess.Stream, String) -> Void) {
        var pending: [[UInt8]] = [[], []]
        let streams: [ChildProcess.Stream] = [.output, .errors]
        var polled = [
            pollfd(fd: output, events: Int16(POLLIN), revents: 0),
            pollfd(fd: errors, events: Int16(POLLIN), revents: 0),
        ]
        var buffer = [UInt8](repeating: 0, count: 65536)
        while polled.contains(where: { $0.fd >= 0 }) {
            guard unsafe poll(&polled, 2, -1) >= 0 || errno == EINTR else { break }
            for index in 0..<2 where polled[index].fd >= 0 && polled[index].revents != 0 {
                let count = unsafe read(polled[index].fd, &buffer, buffer.count)
                if count <= 0 {
                    close(polled[index].fd)
                    polled[index].fd = -1
                    continue
                }
                pending[index] += buffer[0..<count]
                var parts = pending[index].split(separator: 10, omittingEmptySubsequences: false)
                pending[index] = Array(parts.removeLast())
                for part in parts { line(streams[index], String(decoding: part, as: UTF8.self)) }
            }
        }
        for index in 0..<2 where !pending[index].isEmpty {
            line(streams[index], String(decoding: pending[index], as: UTF8.self))
        }
    }

    func wait() -> ChildProcess.Exit {
        var status: Int32 = 0
        while unsafe waitpid(processID, &status, 0) < 0, errno == EINTR {}
        let signal = status & 0x7f
        return signal == 0 ? .status((status >> 8) & 0xff) : .signal(signal)
    }

    private static func pipe() throws -> (read: Int32, write: Int32) {
        var ends: [Int32] = [-1, -1]
        guard unsafe Foundation.pipe(&ends) == 0 else { throw TestFailure("no pipe") }
        for end in ends { closeOnExec(end) }
        return (ends[0], ends[1])
    }

    private static func closeOnExec(_ descriptor: Int32) {
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    }

    /// Makes a file without a name, positioned at its start, so that no writer can block on a full
    /// pipe.
    private static func file(holding bytes: [UInt8]) throws -> Int32 {
        var name = Array("/tmp/carillon-input-XXXXXX".utf8CString)
        let descriptor = unsafe mkstemp(&name)
        guard descriptor >= 0 else { throw TestFailure("no temporary file") }
        unsafe unlink(name)
        closeOnExec(descriptor)
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes[written...].withUnsafeBytes {
                unsafe write(descriptor, $0.baseAddress, $0.count)
            }
            guard count > 0 else { throw TestFailure("the temporary file is not writable") }
            written += count
        }
        lseek(descriptor, 0, SEEK_SET)
        return descriptor
    }
}
