import Gateway
import HTTPServer
import JSON
import Logins
import PushCore
import PushProviders
import ServiceShell
import Settings

/// The variables of this service only; `CommonConfiguration` has the shared ones.
struct RegistrationConfiguration: OwnConfiguration {
    /// The public addresses of the connection nodes; empty without such nodes.
    let connectionURLs: [String]

    /// The public origin of the console, without a slash at its end; `nil`: operators cannot sign in
    /// at an issuer.
    let consoleURL: String?
    /// The hosts of issuers that may be asked.
    let issuers: JWKSConfiguration
    /// The hosts that a service account may name, which the console stores.
    let fcmTokenHosts: [String]

    static let variables: [SettingEntry] =
        [
            connectionURLs.entry, consoleURL.entry,
            ProviderConfiguration.Variable.fcmTokenHosts.entry,
        ] + JWKSConfiguration.Variable.all

    private static let consoleURL = Setting<String>(
        "CONSOLE_URL",
        takes: "an https origin without a path, or an http one of this machine",
        default: nil,
        shown: "none",
        "the public origin of the web console, to which issuers return operators; with none,"
            + " operators sign in with the master key only",
        parse: consoleOrigin
    )

    private static let connectionURLs = Setting<[String]>(
        "CONNECTION_URLS",
        takes: "ws:// or wss:// addresses, separated by commas",
        default: [],
        shown: "none",
        "the public addresses of the connection nodes, between which /v1/route spreads devices; with"
            + " none it responds 404",
        parse: parse
    )

    init(_ reader: ConfigurationReader) throws {
        connectionURLs = try reader.value(of: Self.connectionURLs)
        consoleURL = try reader.optional(Self.consoleURL)
        issuers = try JWKSConfiguration(reader)
        fcmTokenHosts = try reader.value(of: ProviderConfiguration.Variable.fcmTokenHosts)
    }

    /// Parses an origin. Browsers store the console's cookies over https, and over http on this
    /// machine only.
    static func consoleOrigin(_ text: String) -> String? {
        let schemes = ["https://", "http://"]
        guard let scheme = schemes.first(where: text.hasPrefix) else { return nil }
        var rest = String(text.dropFirst(scheme.count))
        if rest.hasSuffix("/") { rest.removeLast() }
        guard rest.utf8.count <= 255, let match = rest.wholeMatch(of: origin) else { return nil }
        if let port = match.output.port, !(1...65_535).contains(Int(port) ?? 0) { return nil }
        let isLocal = ["localhost", "127.0.0.1", "[::1]"].contains(match.output.host.lowercased())
        return scheme == "https://" || isLocal ? scheme + rest : nil
    }

    /// A host, or an IPv6 address in brackets, and a port.
    private static var origin: Regex<(Substring, host: Substring, port: Substring?)> {
        /(?<host>[A-Za-z0-9._\-]+|\[[0-9A-Fa-f:.]+\])(?::(?<port>[0-9]{1,5}))?/
    }

    private static func parse(_ text: String) -> [String]? {
        let urls = text.split(separator: ",").map { $0.filter { $0 != " " } }
        let areURLs = urls.allSatisfy { url in
            (url.hasPrefix("ws://") || url.hasPrefix("wss://")) && url.utf8.count <= 512
                && url.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
                && !(url.split(separator: "/", maxSplits: 2).last ?? "").isEmpty
        }
        return areURLs ? urls : nil
    }
}

/// The routers of LeanCloud's SDKs: where a device finds its connection node (`/v1/route`), and all of an
/// app's hosts (`/2/route`). No key is needed: the SDKs send none.
struct ConnectionRouter: Surface {
    /// The public addresses of the nodes.
    let nodes: [String]

    /// The seconds for which clients may use a response. LeanCloud's own router says three hours.
    private static let lifetimeSeconds = 3600

    let cors: CORS? = CORS(
        "/v1/route",
        "/2/route",
        methods: "GET, OPTIONS",
        headers: "Content-Type"
    )

    func owns(_ request: HTTPServerRequest) -> Bool {
        request.path == "/v1/route" || request.path == "/2/route"
    }

    var routes: [SurfaceRoute] {
        [
            SurfaceRoute(
                .get,
                "/v1/route",
                handler: .unauthenticated { request, context in
                    try await requireApp(of: request, context)
                    return try node(for: request)
                }
            ),
            SurfaceRoute(
                .get,
                "/2/route",
                handler: .unauthenticated { request, context in
                    try await requireApp(of: request, context)
                    return Self.hosts(for: request)
                }
            ),
        ]
    }

    private func requireApp(
        of request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws {
        let id = request.queryValue("appId") ?? ""
        guard try await context.publicSettings(ofApp: id) != nil else {
            throw RouterError(status: 404, code: 404, "there is no such app")
        }
    }

    /// Answers with two nodes. The device determines the first, so that all its connections reach
    /// the same node; the second is for when the first fails.
    private func node(for request: HTTPServerRequest) throws -> HTTPServerResponse {
        guard !nodes.isEmpty else {
            throw RouterError(status: 404, code: 404, "connections are not offered")
        }
        let device = request.queryValue("installationId") ?? ""
        let place =
            device.isEmpty ? Int.random(in: 0..<nodes.count) : Self.place(device, nodes.count)
        return .json([
            // Old SDKs build the name of the next router from this value.
            "groupId": "g0",
            "server": .string(nodes[place]),
            "secondary": .string(nodes[(place + 1) % nodes.count]),
            "ttl": JSONValue(Self.lifetimeSeconds),
        ])
    }

    /// Returns the index of a device's node. It is the same in every process and every version.
    private static func place(_ device: String, _ count: Int) -> Int {
        // FNV-1a.
        let hash = device.utf8.reduce(UInt64(0xcbf2_9ce4_8422_2325)) {
            ($0 ^ UInt64($1)) &* 0x100_0000_01b3
        }
        return Int(hash % UInt64(count))
    }

    /// Answers with this host for each of LeanCloud's services.
    private static func hosts(for request: HTTPServerRequest) -> HTTPServerResponse {
        let base = request.outsideBase
        // Clients read a value without a scheme as https.
        let host = base.hasPrefix("https://") ? String(base.dropFirst(8)) : base
        var answer: JSONObject = ["ttl": JSONValue(lifetimeSeconds)]
        for name in ["api", "push", "rtm_router", "stats", "engine"] {
            answer["\(name)_server"] = .string(host)
        }
        return .json(.object(answer))
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        let problem = HTTPProblem(refusal)
        return RouterError(status: problem.status, code: problem.status, problem.detail).response
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        (error as? RouterError)?.response
    }
}

/// An error as the SDKs read it: `{"code", "error"}`.
private struct RouterError: Error {
    let status: Int
    let code: Int
    let text: String

    init(status: Int, code: Int, _ text: String) {
        (self.status, self.code, self.text) = (status, code, text)
    }

    var response: HTTPServerResponse {
        .json(["code": JSONValue(code), "error": .string(text)], status: status)
    }
}
