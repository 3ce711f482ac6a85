import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Servers that keep their connections and answer nothing, while every service has work in
    /// flight.
    @Suite("A stop while servers hang", .serialized, .timeLimit(.minutes(10)))
    struct HungStopTests {
        enum Hanging: String, CaseIterable {
            case kafka, postgres, both

            var includesKafka: Bool { self != .postgres }
            var includesPostgres: Bool { self != .kafka }
        }

        private static let inFlight = 40
        /// A service that takes longer is ended by force, with 1.
        private static let grace = 12

        @Test(
            "SIGTERM of every service ends with 0 within SHUTDOWN_GRACE, and no event is lost",
            arguments: Hanging.allCases
        )
        func stops(_ hanging: Hanging) async throws {
            // Six services with a pool for each loop.
            let postgres = try await PrivatePostgres.start(settings: ["max_connections=400"])
            do {
                try await HungBrokerTests.withBroker { broker, settings in
                    let settings = settings.merging([
                        "SHUTDOWN_GRACE": "\(Self.grace)s",
                        "DISPATCH_IN_FLIGHT": "\(Self.inFlight)",
                    ]) { $1 }
                    try await Stack.with(settings, postgres: postgres) { stack in
                        try await Self.stop(stack, hanging, broker, postgres)
                    }
                }
            } catch {
                await postgres.remove()
                throw error
            }
            await postgres.remove()
        }

        private static func stop(
            _ stack: Stack,
            _ hanging: Hanging,
            _ broker: ChildProcess,
            _ postgres: PrivatePostgres
        ) async throws {
            // Slow enough that most of what is in flight is answered after the servers hang.
            try await stack.simulator.setRules([["provider": "apns", "delayMs": [1500, 2500]]])
            let collected = Collected(stack.simulator)
            var services: [Stack.Service] = []
            for name in [
                "registration", "ingest", "config-watcher", "secure-payload", "connection",
                "dispatcher",
            ] { services.append(try await stack.start("carillon-\(name)")) }
            let load = try await StoppingTests.Load(1000, on: stack)
            _ = try await eventually("requests are at the provider") {
                try await stack.simulator.count("apns", status: 200) >= inFlight ? true : nil
            }
            let before = try await stack.simulator.count("apns", status: 200)
            #expect(before < load.events.count - inFlight, "all was sent before the servers hang")
            // Postgres must not hang when the stack is removed after a failure.
            let ended: Result<Void, any Error>
            if hanging.includesPostgres { try await postgres.hang() }
            if hanging.includesKafka { broker.signal(SIGSTOP) }
            do {
                try await endAll(services, load)
                ended = .success(())
            } catch {
                ended = .failure(error)
            }
            if hanging.includesPostgres { try await postgres.resume() }
            if hanging.includesKafka { broker.signal(SIGCONT) }
            try ended.get()
            if !hanging.includesPostgres {
                let owned = try await stack.database.query(
                    """
                    select (select count(*) from dispatchers), count(*) from deliveries
                    where state = 0 and owner is not null
                    """
                )
                #expect(owned == ["0|0"], "what was not recorded went back with the session")
            }
            try await stack.simulator.setRules([])
            let last = try await stack.start("carillon-dispatcher")
            try await load.finished()
            try await collected.update()
            #expect(await last.process.stop() == .status(0), "\(last.process.finalBytes)")
            try await load.checkOutcomes()
            let names = await collected.names
            #expect(Set(names.keys) == Set(load.events.keys))
            #expect(names.values.allSatisfy { Set($0).count == 1 }, "a repeat has its own apns-id")
            let repeats = await collected.requests - load.events.count
            #expect(repeats <= inFlight)
        }

        /// Stops the services once they have work that the servers do not let them finish.
        private static func endAll(
            _ services: [Stack.Service],
            _ load: StoppingTests.Load
        ) async throws {
            // These get no answer: the one needs Postgres, the other Kafka.
            let calls = [
                call(
                    services[0].url + "/1.1/installations",
                    load.app.masterHeaders,
                    ["deviceType": "ios", "deviceToken": .string(makeAPNsToken())]
                ),
                call(
                    services[1].url + "/v1/ingest/PushOpened",
                    IngestBench.basic(load.app.appKey),
                    [
                        "_id": .string(UUID().uuidString.lowercased()),
                        "pushId": .string(UUID().uuidString.lowercased()),
                    ]
                ),
            ]
            for service in services { service.process.signal(SIGTERM) }
            for service in services {
                let (exit, name) = (await service.process.exit(), service.process.name)
                #expect(exit == .status(0), "\(name): \(service.process.finalBytes)")
            }
            for call in calls { await call.value }
        }

        /// Begins a call whose answer does not matter.
        private static func call(
            _ url: String,
            _ headers: [String: String],
            _ body: JSONValue
        ) -> Task<Void, Never> {
            Task { _ = try? await http("POST", url, headers: headers, body: body) }
        }
    }
}
