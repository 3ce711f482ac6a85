import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Outages that the client of Realm's must survive without a logout, a reset or a loss.
    @Suite(
        "Realm's client survives outages of ingest",
        .serialized,
        needsBroker,
        needsRealmClient,
        .timeLimit(.minutes(10))
    )
    struct RealmOutageTests {
        /// Runs the body with a service at an address that stays the same.
        private func withService(
            _ body: (IngestBench, _ restart: () async throws -> Void) async throws -> Void
        ) async throws {
            try await Stack.with { stack in
                let settings = ["HTTP_PORT": String(try freePort())]
                var service = try await IngestBench.start(on: stack, settings)
                let bench = IngestBench(stack, service, try await stack.makeApp())
                try await bench.declare("WeatherSensor", IngestBench.weatherSensor)
                try await stack.carillon("app", "set", bench.app.id, "realm-sync=on")
                try await body(bench) {
                    service.process.signal(SIGKILL)
                    _ = await service.process.exit()
                    service = try await IngestBench.start(on: stack, settings)
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("Kills of the service and of the client lose nothing, and store nothing twice")
        func kills() async throws {
            try await withService { bench, restart in
                try await withDeviceFolder { folder in
                    var device = try await RealmDevice.start(in: folder, bench)
                    for round in 0..<3 {
                        device.beginWriting(300, first: round * 300, pause: 2)
                        _ = try await eventually("some objects are accepted") {
                            try await bench.count("ingest_objects_accepted_total") > 20 ? true : nil
                        }
                        try await restart()
                        try await device.waitUpload()
                        device.expectUnharmed(errors: nil)
                        await device.crash()
                        device = try await RealmDevice.start(in: folder, bench, login: nil)
                    }
                    try await device.waitUpload()
                    device.expectUnharmed(errors: nil)
                    await device.quit()
                }
                try await bench.expectNumbered(900)
            }
        }

        @Test("A stop asks clients to come again, and a second service needs no state of the first")
        func drain() async throws {
            try await withService { bench, restart in
                try await withDeviceFolder { folder in
                    let device = try await RealmDevice.start(in: folder, bench)
                    try await device.writeMany(10)
                    try await device.waitUpload()
                    #expect(await bench.service.process.stop() == .status(0))
                    try await device.writeMany(10, first: 10)
                    try await restart()
                    try await device.waitUpload()
                    device.expectUnharmed(errors: nil)
                    await device.quit()
                }
                try await bench.expectNumbered(20)
            }
        }

        @Test("While the broker hangs, clients are asked to repeat later, and lose nothing")
        func broker() async throws {
            try await HungBrokerTests.withBroker { broker, settings in
                try await Stack.with(settings) { stack in
                    // The mock broker creates a topic for the first client that asks for it.
                    _ = try await run(
                        "/usr/bin/kcat",
                        [
                            "-L", "-b", settings["KAFKA_BOOTSTRAP_SERVERS"] ?? "",
                            "-t", stack.topic("ingest.WeatherSensor"),
                        ]
                    )
                    let service = try await IngestBench.start(on: stack)
                    let bench = IngestBench(stack, service, try await stack.makeApp())
                    try await bench.declare("WeatherSensor", IngestBench.weatherSensor)
                    try await stack.carillon("app", "set", bench.app.id, "realm-sync=on")
                    try await withDeviceFolder { folder in
                        let device = try await RealmDevice.start(in: folder, bench)
                        try await device.writeMany(5)
                        try await device.waitUpload()
                        broker.signal(SIGSTOP)
                        try await device.writeMany(5, first: 5)
                        _ = try await eventually(
                            "the client is asked to pause",
                            within: .seconds(60)
                        ) {
                            try await bench.count("ingest_realm_pauses_total") > 0 ? true : nil
                        }
                        broker.signal(SIGCONT)
                        try await device.waitUpload()
                        device.expectUnharmed(errors: nil)
                        await device.quit()
                    }
                    try await bench.expectNumbered(10)
                    #expect(await service.process.stop() == .status(0))
                }
            }
        }

        @Test("Off, over its quota and without its topic, an app's clients keep their objects")
        func refusals() async throws {
            try await withService { bench, _ in
                try await withDeviceFolder { folder in
                    let device = try await RealmDevice.start(in: folder, bench)
                    try await device.writeMany(5)
                    try await device.waitUpload()
                    let app = bench.app.id
                    for (off, on) in [
                        ("realm-sync=off", "realm-sync=on"),
                        ("ingest-objects-per-minute=1", "ingest-objects-per-minute=0"),
                    ] {
                        try await bench.stack.carillon("app", "set", app, off)
                        let first = off.hasPrefix("realm") ? 5 : 15
                        try await device.writeMany(10, first: first)
                        let early = try await device.reply(
                            to: ["cmd": "waitUpload", "timeoutMs": 3000]
                        )
                        #expect(early["error"] != nil || off.hasPrefix("ingest"), "\(early.text)")
                        try await bench.stack.carillon("app", "set", app, on)
                        try await device.waitUpload()
                    }
                    device.expectUnharmed(errors: nil)
                    await device.quit()
                }
                try await bench.expectNumbered(25)
            }
        }
    }
}
