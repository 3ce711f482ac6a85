import Foundation
import Support
import Testing

extension EndToEndTests {
    @Suite("A dispatcher keeps its session, and releases unknown rows", .serialized)
    struct SessionLifeTests {
        /// Returns the id of the only session, once there is one.
        private func session(_ stack: Stack) async throws -> String {
            try await eventually("the dispatcher has its session", within: .seconds(30)) {
                try await stack.database.query("select id from dispatchers where id < 1000000")
                    .first
            }
        }

        /// Waits until the session's lease has been renewed for this long.
        private func renewals(of session: String, for seconds: Int, _ stack: Stack) async throws {
            let since = try await stack.database.query("select clock_timestamp()")[0]
            _ = try await eventually("\(seconds) s of heartbeats", within: .seconds(60)) {
                let leases = try await stack.database.query(
                    """
                    select lease_until - interval '10 s' > '\(since)'::timestamptz
                        + interval '\(seconds) s'
                    from dispatchers where id < 1000000 order by id desc limit 1
                    """
                )
                return leases == ["t"] ? true : nil
            }
            #expect(
                try await stack.database.query("select id from dispatchers where id < 1000000")
                    == [session]
            )
        }

        @Test("Locked rows of a dead session do not end another session")
        func heldRows() async throws {
            try await Stack.with { stack in
                _ = try await stack.start("carillon-dispatcher")
                let session = try await session(stack)
                _ = try await stack.database.query(
                    """
                    insert into dispatchers (id, name, lease_until) overriding system value
                        values (1000000, 'dead', now() + interval '1 h');
                    insert into deliveries (day, push_id, target, app, provider, token, lane, owner)
                        values (current_date, gen_random_uuid(), 'held', 'nobody', 'fcm', 't', 1,
                            1000000)
                    """
                )
                async let holding = stack.database.query(
                    "select 1 from deliveries where target = 'held' for update; select pg_sleep(15)"
                )
                _ = try await eventually("the row is held", within: .seconds(30)) {
                    let free = try await stack.database.query(
                        "select 1 from deliveries where target = 'held' for update skip locked"
                    )
                    return free.isEmpty ? true : nil
                }
                _ = try await stack.database.query(
                    "update dispatchers set lease_until = now() where id = 1000000"
                )
                try await renewals(of: session, for: 14, stack)
                _ = try await holding
                _ = try await eventually("it is given back", within: .seconds(30)) {
                    let owners = try await stack.database.query(
                        "select coalesce(owner, 0) <> 1000000 from deliveries where target = 'held'"
                    )
                    return owners == ["t"] ? true : nil
                }
            }
        }

        @Test("A push that the session owns and no planner knows is planned")
        func strayPlan() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                _ = try await stack.start("carillon-dispatcher")
                let session = try await session(stack)
                // A claim whose answer was lost leaves this.
                _ = try await stack.database.query(
                    """
                    insert into pushes (id, app, event_source, event_id, request, status, lane,
                        planned_until, planner)
                    values (gen_random_uuid(), '\(app.id)', 'e2e', 'stray',
                        '{"data": {"alert": "To nobody"}}', 'planning', 1, now(), \(session))
                    """
                )
                _ = try await eventually("the push is over", within: .seconds(30)) {
                    let status = try await stack.database.query("select status from pushes")
                    return status == ["done"] ? true : nil
                }
            }
        }

        @Test("A step of the wall clock, forward or back, does not end a session")
        func wallClock() async throws {
            try await Stack.with { stack in
                let clock = try await WallClock(in: stack.folder)
                _ = try await stack.start("carillon-dispatcher", clock.environment)
                let session = try await session(stack)
                for step in [60, -3600, 7200] {
                    try clock.set(offset: step)
                    try await renewals(of: session, for: 4, stack)
                }
            }
        }
    }
}

/// A wall clock for a child process that a test may set.
private struct WallClock {
    private let offsetFile: String
    private let library: String

    var environment: [String: String] {
        ["LD_PRELOAD": library, "WALL_CLOCK_OFFSET": offsetFile]
    }

    init(in folder: String) async throws {
        offsetFile = folder + "/wall-clock"
        library = folder + "/wall-clock.so"
        let source = folder + "/wall-clock.c"
        try Self.program.write(toFile: source, atomically: true, encoding: .utf8)
        _ = try await run(
            "/usr/bin/env",
            ["clang", "-shared", "-fPIC", "-O2", "-o", library, source],
            // It is the toolchain's own, beside `swift`.
            environment: ["PATH": ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"]
        ).successful("clang")
        try set(offset: 0)
    }

    /// Sets the seconds ahead of the machine's clock.
    func set(offset: Int) throws {
        let file = offsetFile
        if !FileManager.default.fileExists(atPath: file) {
            _ = FileManager.default.createFile(atPath: file, contents: nil)
        }
        // It writes in place, as the process has the file mapped.
        let handle = try FileHandle(forUpdating: URL(fileURLWithPath: file))
        defer { try? handle.close() }
        try unsafe withUnsafeBytes(of: Int64(offset)) {
            try unsafe handle.write(contentsOf: Data($0))
        }
    }

    private static let program = """
        #include <fcntl.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>

        static volatile int64_t *offset;

        __attribute__((constructor)) static void begin(void) {
            int file = open(getenv("WALL_CLOCK_OFFSET"), O_RDONLY);
            void *place = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
            if (place != MAP_FAILED) offset = place;
            close(file);
        }

        int clock_gettime(clockid_t clock, struct timespec *time) {
            long status = syscall(SYS_clock_gettime, clock, time);
            if (status == 0 && clock == CLOCK_REALTIME && offset) time->tv_sec += *offset;
            return (int)status;
        }

        """
}
