import EventLoop
import Observability
import Support
import Testing

@testable import HTTPServer

/// A server at its connection limit.
@Suite("A full server", .timeLimit(.minutes(1)))
struct FullServerTests {
    private let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    private func full(
        _ count: Int,
        _ body: (StillServer) async throws -> Void
    ) async throws {
        try await withStillServer(
            answerBytes: 5,
            configure: { $0.maximumConnections = count },
            body
        )
    }

    private func opened(_ count: Int, _ server: StillServer) async throws {
        _ = try await eventually("\(count) are open") {
            server.openConnections == count ? true : nil
        }
    }

    private func expectReset(_ wire: Wire) async throws {
        await #expect(throws: TestFailure.self) { try await wire.receiveAll() }
    }

    @Test("The oldest connection without a request makes room for a new one, and no other does")
    func silentMakeRoom() async throws {
        try await full(3) { server in
            let honest = try Wire(port: server.port)
            defer { honest.close() }
            try await honest.send(head)
            _ = try await honest.receive(until: "xxxxx")
            let first = try Wire(port: server.port)
            defer { first.close() }
            try await opened(2, server)
            let second = try Wire(port: server.port)
            defer { second.close() }
            // Half a head is not a request.
            try await second.send("GET / HT")
            try await opened(3, server)
            try await Task.sleep(for: SilentConnections.protectedFor)

            let new = try Wire(port: server.port)
            defer { new.close() }
            try await new.send(head)
            _ = try await new.receive(until: "xxxxx")
            try await expectReset(first)
            let newest = try Wire(port: server.port)
            defer { newest.close() }
            try await newest.send(head)
            _ = try await newest.receive(until: "xxxxx")
            try await expectReset(second)
            let silent = server.metrics.counter(.httpRefused, ["reason": "silent"])
            #expect(silent.value == 2)

            // All three have sent a request now.
            let late = try Wire(port: server.port)
            defer { late.close() }
            try await expectReset(late)
            let refused = server.metrics.counter(.httpRefused, ["reason": "connections"])
            #expect(refused.value == 1)
            for wire in [honest, new, newest] {
                try await wire.send(head)
                _ = try await wire.receive(until: "xxxxx")
            }
        }
    }

    @Test("A connection that never sends a byte ends after HTTP_HEAD_TIMEOUT")
    func neverSendsAByte() async throws {
        try await full(3) { server in
            let silent = try Wire(port: server.port)
            defer { silent.close() }
            try await opened(1, server)
            await server.tick(after: .seconds(11))
            #expect(try await silent.receiveAll().isEmpty)
            // The peer's side may stay open; our side does not wait for it.
            await server.tick(after: .seconds(14))
            try await opened(0, server)
        }
    }

    @Test(
        "Log lines that an attacker can cause are rate limited, and report how many were left out"
    )
    func summedLines() {
        var line = SummedLine(every: .seconds(10))
        let now = ContinuousClock.now
        #expect(line.event(at: now) == 1)
        #expect(line.event(at: now + .seconds(1)) == nil)
        #expect(line.event(at: now + .seconds(9)) == nil)
        #expect(line.event(at: now + .seconds(10)) == 3)
        #expect(line.event(at: now + .seconds(11)) == nil)
    }
}
