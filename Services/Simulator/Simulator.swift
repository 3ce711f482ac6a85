import Cryptography
import EventLoop
import HTTPServer
import JSON
import Kafka
import Observability
import PushCore
import ServiceKit

/// A simulator of APNs, FCM, WNS and MPNS, as strict as they are, with scripted faults.
///
/// Flow: listener → `Destination` → that provider's checker → the first `Rule` that matches → `ReceivedLog` →
/// answer. State is in memory, in `SimulatorCore`; credentials are files. Shutdown answers the received
/// requests; it promises nothing else.
@main
struct Simulator {
    static func main() async {
        await runService(
            "simulator",
            about: "stands in for APNs, FCM, WNS and MPNS",
            variables: SimulatorConfiguration.variables,
            reading: SimulatorConfiguration.init,
            parts: makeParts
        )
    }
}

/// Creates the parts. The control comes first, so that it answers until the end. Before any part
/// runs, the credentials are on disk and every port is bound: a simulator that is ready can be
/// used.
func makeParts(
    _ configuration: SimulatorConfiguration,
    in runtime: ServiceRuntime
) async throws -> [any ServicePart] {
    let folder = try CredentialFolder(configuration, now: Instant.now().seconds)
    let core = SimulatorCore(on: runtime.mainLoop, log: runtime.log, metrics: runtime.metrics)
    var known = CredentialSet()
    known.apns = [folder.apnsKey]
    known.fcm = [folder.fcmAccount]
    known.wns = [folder.wnsClient]
    await core.add(known)

    let pair = try folder.authority.issue(hosts: configuration.certificateHosts)
    let certificate = HTTPServerConfiguration.Certificate.pem(
        certificate: pair.certificatePEM,
        privateKey: pair.privateKeyPEM
    )
    let providers = try providerServer(
        configuration,
        runtime,
        core,
        .providers,
        port: configuration.providerPort,
        certificate,
        [.http2, .http11]
    )
    let sandbox = try providerServer(
        configuration,
        runtime,
        core,
        .sandbox,
        port: configuration.sandboxPort,
        certificate,
        [.http2]
    )
    let control = try runtime.makeServer(
        HTTPServerConfiguration(host: configuration.host, port: configuration.controlPort),
        for: .service(share: 3),
        loops: [runtime.mainLoop]
    ) { _ in
        var router = Router()
        router.addOperationsRoutes(runtime)
        addControlRoutes(to: &router, core)
        addProviderRoutes(to: &router, core, by: .plain)
        return router
    }

    let providerPort = try await providers.start().first?.port ?? configuration.providerPort
    let sandboxPort = try await sandbox.start().first?.port ?? configuration.sandboxPort
    runtime.log.info(
        "sandbox listening",
        [.scheme: "https", .port: .integer(sandboxPort)]
    )
    let controlPort = try await control.start().first?.port ?? configuration.controlPort
    let host = configuration.publicHost
    let name = host.contains(":") ? "[\(host)]" : host
    let tokenURI = "https://\(name):\(providerPort)/token"
    try folder.write(
        tokenURI: tokenURI,
        ports: [
            "control": JSONValue(controlPort), "providers": JSONValue(providerPort),
            "sandbox": JSONValue(sandboxPort),
        ]
    )
    await core.attach(servers: [providers, sandbox], tokenURI: tokenURI)
    let broker = try configuration.hostsKafka ? MockBroker(configuration, log: runtime.log) : nil
    var parts: [any ServicePart] = [part("control", control)]
    if let broker { parts.append(broker) }
    return parts + [part("providers", providers), part("sandbox", sandbox)]
}

private func providerServer(
    _ configuration: SimulatorConfiguration,
    _ runtime: ServiceRuntime,
    _ core: SimulatorCore,
    _ entrance: ListenerKind,
    port: Int,
    _ certificate: HTTPServerConfiguration.Certificate,
    _ protocols: [HTTPServerConfiguration.ApplicationProtocol]
) throws -> HTTPServer {
    var server = HTTPServerConfiguration(
        host: configuration.host,
        port: nil,
        tls: HTTPServerConfiguration.TLS(
            port: port,
            certificate: certificate,
            applicationProtocols: protocols,
            requestsClientCertificate: true
        )
    )
    // Providers leave connections open for hours; senders must not rely on less.
    server.idleTimeout = .seconds(3600)
    server.http2.maxConcurrentStreams = 1
    // The sandbox's port is logged in its own message.
    let log = entrance == .sandbox ? Log.disabled : runtime.log
    return try runtime.makeServer(
        server,
        for: .service(share: 3),
        loops: [runtime.mainLoop],
        log: log
    ) { _ in
        var router = Router()
        addProviderRoutes(to: &router, core, by: entrance)
        return router
    }
}

private func part(_ name: String, _ server: HTTPServer) -> ClosurePart {
    ClosurePart(name, notReady: { server.notReadyReason() }, run: { try await server.run() })
}
