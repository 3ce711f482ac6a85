import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The official client before two replicas of ingest, neither of which has a state of the other.
    @Suite(
        "Realm's client moves between replicas of ingest",
        .serialized,
        needsBroker,
        needsRealmClient,
        .timeLimit(.minutes(10))
    )
    struct RealmReplicaTests {
        /// Runs the body with two replicas; the bench has the first.
        private func withReplicas(
            _ body: (IngestBench, _ second: IngestBench) async throws -> Void
        ) async throws {
            try await Stack.with { stack in
                let settings = ["INGEST_REALM_MAX_SOCKETS_PER_ADDRESS": "0"]
                let first = try await IngestBench.start(on: stack, settings)
                let second = try await IngestBench.start(on: stack, settings)
                let bench = IngestBench(stack, first, try await stack.makeApp())
                try await bench.declare("WeatherSensor", IngestBench.weatherSensor)
                try await stack.carillon("app", "set", bench.app.id, "realm-sync=on")
                try await body(bench, IngestBench(stack, second, bench.app))
                for service in [first, second] where service.process.isRunning {
                    #expect(await service.process.stop() == .status(0))
                }
            }
        }

        @Test(
            "A client that is moved in the middle of its uploads loses nothing, and is told nothing"
        )
        func moves() async throws {
            try await withReplicas { first, second in
                try await RealmProxy.with(first) { proxy in
                    try await withDeviceFolder { folder in
                        let device = try await RealmDevice.start(in: folder, first, through: proxy)
                        let ways = [(first, second), (second, first), (first, second)]
                        for (round, (bench, next)) in ways.enumerated() {
                            let before = try await bench.count("ingest_objects_accepted_total")
                            device.beginWriting(300, first: round * 300, pause: 5)
                            _ = try await eventually("the replica stores objects") {
                                let now = try await bench.count("ingest_objects_accepted_total")
                                return now > before + 20 ? true : nil
                            }
                            try await proxy.move(to: next.service)
                            try await device.waitUpload()
                        }
                        device.expectUnharmed()
                        await device.quit()
                    }
                    let ports = Set(try await proxy.handshakes.compactMap { $0["port"]?.integer })
                    #expect(ports == [try first.service.port, try second.service.port])
                }
                try await first.expectNumbered(900)
            }
        }

        @Test("A replica that stops in the middle of a transaction of 24 MB loses nothing")
        func largeUpload() async throws {
            try await withReplicas { first, second in
                let schema: JSONValue = [
                    [
                        "name": "WeatherSensor", "kind": "asymmetric", "pk": "_id",
                        "props": ["_id": "objectId", "deviceId": "string?", "more": "string?"],
                    ]
                ]
                let (large, small) = (IngestBench.makeID(), IngestBench.makeID())
                try await RealmProxy.with(first) { proxy in
                    try await withDeviceFolder { folder in
                        let device = try await RealmDevice.start(
                            in: folder,
                            first,
                            through: proxy,
                            schema: schema
                        )
                        try await device.waitUpload()
                        try await proxy.set(["rate": 4_000_000])
                        let text = RealmDevice.text(of: 12_000_000)
                        try await device.write([
                            [
                                "_id": .string(large), "deviceId": .string(text),
                                "more": .string(text),
                            ]
                        ])
                        try await device.write([["_id": .string(small), "deviceId": "x"]])
                        _ = try await eventually("a part is sent") {
                            try await proxy.sentBytes > 4_000_000 ? true : nil
                        }
                        try await proxy.set([
                            "port": JSONValue(try second.service.port), "rate": .null,
                        ])
                        #expect(await first.service.process.stop() == .status(0))
                        try await device.waitUpload()
                        _ = try await eventually("the app knows of the refused object") {
                            device.syncErrors.contains { $0["compensating"]?.array?.count == 1 }
                                ? true : nil
                        }
                        device.expectUnharmed(errors: 1)
                        await device.quit()
                    }
                }
                let view = try await second.view(of: "WeatherSensor")
                _ = try await eventually("the small one is stored", within: .seconds(60)) {
                    try await second.stack.database.query("SELECT _id FROM \(view)") == [small]
                        ? true : nil
                }
            }
        }

        @Test(
            "The clients of a replica that stops come back one by one, not all in the same second"
        )
        func stop() async throws {
            try await withReplicas { first, second in
                try await RealmProxy.with(first) { proxy in
                    try await withDeviceFolder { folder in
                        let device = try await RealmDevice.start(in: folder, first, through: proxy)
                        try await device.writeMany(5)
                        try await device.waitUpload()
                        let crowd = try await ChildProcess.start(
                            "/usr/bin/python3",
                            [
                                scriptFile("../Benchmarks/realm_clients.py"), "return",
                                String(try first.service.port), first.app.id, "1500",
                                String(try second.service.port),
                            ],
                            environment: ["PYTHONDONTWRITEBYTECODE": "1"]
                        )
                        _ = try await crowd.line("the crowd is connected") { $0 == "open" }
                        try await proxy.set(["port": JSONValue(try second.service.port)])
                        #expect(await first.service.process.stop() == .status(0))
                        try await device.writeMany(5, first: 5)
                        try await device.waitUpload()
                        device.expectUnharmed()
                        await device.quit()
                        #expect(await crowd.exit() == .status(0), "\(crowd.finalBytes)")
                        let came = try JSONValue.parse(crowd.lines().last ?? "")
                        print("realm: the clients of a replica come back: \(came.text)")
                        #expect(came["longest"] == 8)
                        // Loops that stop at the same moment read the same number.
                        #expect((came["most"]?.integer ?? 1_500) < 260)
                    }
                }
                try await first.expectNumbered(10)
            }
        }
    }
}
