import Cryptography
import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore
import Support
import Testing

@testable import PushProviders

/// Clients with a server that answers as the test says.
struct Bench {
    let server: LocalServer
    let loop: EventLoop
    let directory: ProviderClients

    init(
        _ server: LocalServer,
        _ loop: EventLoop,
        _ clock: DatabaseClock,
        _ change: (inout ProviderConfiguration) -> Void
    ) throws {
        var configuration = ProviderConfiguration()
        configuration.apnsProductionURL = server.origin
        configuration.apnsSandboxURL = server.origin
        configuration.fcmURL = server.origin
        configuration.wnsLiveTokenURL = server.origin
        configuration.wnsEntraTokenURL = server.origin
        configuration.fcmTokenHosts = ["localhost:\(server.port)"]
        configuration.wnsChannelHosts = ["localhost:\(server.port)/wns/"]
        configuration.mpnsChannelHosts = ["localhost:\(server.port)/mpns/"]
        configuration.caFile = server.caFile
        configuration.requestTimeout = .seconds(10)
        change(&configuration)
        self.server = server
        self.loop = loop
        directory = try ProviderClients(configuration, on: loop, clock: clock)
    }

    func send(
        _ key: ProviderClients.Key,
        _ secret: JSONObject,
        _ deliveries: [OutgoingNotification],
        version: Int64 = 1
    ) async throws -> [ProviderAnswer] {
        let answers = Answers()
        try await loop.onLoop { [directory] in
            let client = try directory.client(for: key, version: version) { secret }
            client.send(deliveries) { answers.add($0, $1) }
        }
        return try await eventually("\(deliveries.count) answers") {
            answers.all(deliveries.count)
        }
    }

    /// Starts deliveries without waiting for their answers.
    func start(
        _ key: ProviderClients.Key,
        _ secret: JSONObject,
        _ deliveries: [OutgoingNotification]
    ) async throws -> Answers {
        let answers = Answers()
        try await loop.onLoop { [directory] in
            let client = try directory.client(for: key, version: 1) { secret }
            client.send(deliveries) { answers.add($0, $1) }
        }
        return answers
    }

    func withdrawAll() async throws {
        try await loop.onLoop { [directory] in directory.withdrawAll() }
    }

    static func run(
        streams: Int = 100,
        requestsClientCertificate: Bool = false,
        clock: DatabaseClock = DatabaseClock(),
        change: (inout ProviderConfiguration) -> Void = { _ in },
        handler: @escaping LocalServer.Handler,
        _ body: (Bench) async throws -> Void
    ) async throws {
        try await withLocalServer(
            maxConcurrentStreams: streams,
            requestsClientCertificate: requestsClientCertificate,
            handler: handler
        ) { server, loop in
            let bench = try Bench(server, loop, clock, change)
            let result: Result<Void, any Error>
            do {
                try await body(bench)
                result = .success(())
            } catch {
                result = .failure(error)
            }
            try await loop.onLoop { bench.directory.close() }
            try result.get()
        }
    }
}

func deliveries(_ platform: Platform, _ tokens: [String]) throws -> [OutgoingNotification] {
    let request = PushRequest(audience: .installations(.init()), data: ["alert": "Hi"])
    let payload = try RenderedPayload.render(request, pushID: "p", for: platform)
    return tokens.map {
        OutgoingNotification(
            notificationID: "id-\($0)",
            target: DeviceTarget(provider: platform, token: $0),
            payload: payload
        )
    }
}
