import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore

/// The simulator's port that received a request.
enum ListenerKind: Sendable {
    /// TLS: every provider.
    case providers
    /// TLS: APNs' sandbox, and nothing else.
    case sandbox
    /// Plain: MPNS' unauthenticated channels.
    case plain

    var environment: String { self == .sandbox ? "sandbox" : "production" }
}

/// The state of the simulated providers, and the one place where a request is checked, scripted, recorded and
/// answered. Confined to one loop.
actor SimulatorCore {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    struct Settings: Sendable {
        /// The limit for connections that may have more than one stream.
        var maxConcurrentStreams = 1000
        /// The number of requests after which a connection gets GOAWAY; `nil`: never.
        var goawayAfter: Int?
        /// The lifetime of FCM's and WNS' access tokens, in seconds.
        var accessTokenLifetime: Int64 = 3599
    }

    private struct ConnectionState {
        var apns = APNsConnection()
        var requestCount = 0
        /// Whether more than one stream is already allowed.
        var isRaised = false
        var entrance: ListenerKind
    }

    /// The limit of known connections: the oldest are dropped, and then count as new.
    private static let maximumConnections = 20_000

    private let log: Log
    private let metrics: Metrics
    private var apns = APNsChecker()
    private var fcm = FCMChecker()
    private var wns = WNSChecker()
    private var mpns = MPNSChecker()
    private var rules = RuleSet()
    private var received = ReceivedLog()
    private var settings = Settings()
    private var connections: [Int: ConnectionState] = [:]
    private var servers: [HTTPServer] = []
    private var tokenURI = ""

    init(on loop: EventLoop, log: Log, metrics: Metrics) {
        self.loop = loop
        self.log = log
        self.metrics = metrics
    }

    /// Sets the values that are known only once the listeners are bound.
    func attach(servers: [HTTPServer], tokenURI: String) {
        self.servers = servers
        self.tokenURI = tokenURI
    }

    func add(_ credentials: CredentialSet) {
        for key in credentials.apns { apns.add(key) }
        for account in credentials.fcm { fcm.add(account) }
        for client in credentials.wns { wns.add(client) }
    }

    // MARK: Providers

    func serve(_ request: HTTPServerRequest, by entrance: ListenerKind) async -> HTTPServerResponse
    {
        let destination = Destination(request, by: entrance)
        if case .none = destination { return .problem(HTTPProblem(status: 404)) }
        guard let endpoint = destination.tokenEndpoint else {
            return await push(request, to: destination, by: entrance)
        }
        let now = Instant.now()
        if let rule = rules.take(
            destination.provider,
            token: nil,
            path: request.path,
            isPush: false,
            roll: Self.roll
        ) {
            return await scripted(rule, CheckResult(), request, destination, entrance, now)
        }
        let response = grant(endpoint, request, now.seconds)
        count(destination.provider.rawValue + "Token", "\(response.status)")
        return response
    }

    private func grant(
        _ endpoint: Destination.TokenEndpoint,
        _ request: HTTPServerRequest,
        _ now: Int64
    ) -> HTTPServerResponse {
        guard request.method == .post else { return .problem(HTTPProblem(status: 405)) }
        let lifetime = settings.accessTokenLifetime
        switch endpoint {
        case .google:
            let own = request.headers["host"].map { "https://\($0)/token" }
            return fcm.grant(
                request,
                audiences: [tokenURI, own ?? tokenURI],
                now: now,
                lifetime: lifetime
            )
        case .live:
            return wns.grantLive(request, now: now, lifetime: lifetime)
        case .entra(let tenant):
            return wns.grantEntra(request, tenant: tenant, now: now, lifetime: lifetime)
        }
    }

    private func push(
        _ request: HTTPServerRequest,
        to destination: Destination,
        by entrance: ListenerKind
    ) async -> HTTPServerResponse {
        let now = Instant.now()
        var state = connections[request.connectionID] ?? ConnectionState(entrance: entrance)
        state.requestCount += 1
        let result: CheckResult
        switch destination {
        case .apns:
            if request.protocolVersion == .http2 {
                result = apns.check(
                    request,
                    environment: entrance.environment,
                    now: now.seconds,
                    connection: &state.apns
                )
            } else {
                result = .of { _ throws(Refusal) in throw Refusal(505, "HTTP2Required") }
            }
        case .fcm(let project):
            result = fcm.check(request, project: project, now: now.seconds)
        case .wns:
            result = wns.check(request, now: now.seconds)
        case .mpns:
            result = mpns.check(
                request,
                isAuthenticated: request.clientCertificateSubject != nil,
                now: now
            )
        case .token, .none:
            return .problem(HTTPProblem(status: 404))
        }
        raiseStreams(&state, request, isAPNs: destination == .apns)
        remember(state, request.connectionID)
        let rule =
            result.status == 200
            ? rules.take(
                destination.provider,
                token: result.target(of: destination.provider),
                path: request.path,
                isPush: true,
                roll: Self.roll
            )
            : nil
        var response: HTTPServerResponse
        if let rule {
            response = await scripted(rule, result, request, destination, entrance, now)
        } else {
            response = answer(result, request, destination, entrance, now)
            record(request, result, destination, entrance, now, response, reason: nil)
        }
        if destination == .mpns {
            mpns.answered(response.status, to: request.rawTarget, now: now)
        }
        if let limit = settings.goawayAfter, state.requestCount == limit,
            response.ending == nil
        {
            response.isLast(of: request)
        }
        return response
    }

    private static func roll() -> Double { Double.random(in: 0..<100) }

    /// Raises the limit of streams. APNs allows one until the first valid provider token; other providers
    /// have no such limit.
    private func raiseStreams(
        _ state: inout ConnectionState,
        _ request: HTTPServerRequest,
        isAPNs: Bool
    ) {
        guard !state.isRaised, request.protocolVersion == .http2,
            !isAPNs || state.apns.isTrusted
        else { return }
        state.isRaised = true
        for server in servers {
            server.setMaxConcurrentStreams(
                settings.maxConcurrentStreams,
                connection: request.connectionID
            )
        }
    }

    private func remember(_ state: ConnectionState, _ connection: Int) {
        if connections.count >= Self.maximumConnections, connections[connection] == nil {
            let oldest = connections.keys.sorted().prefix(Self.maximumConnections / 2)
            for key in oldest { connections[key] = nil }
        }
        connections[connection] = state
    }

    // MARK: Answers

    private func answer(
        _ result: CheckResult,
        _ request: HTTPServerRequest,
        _ destination: Destination,
        _ entrance: ListenerKind,
        _ now: Instant,
        timestamp: Int64? = nil
    ) -> HTTPServerResponse {
        switch destination.provider {
        case .apns:
            return APNsAnswer.make(
                status: result.status,
                reason: result.reason,
                timestamp: timestamp ?? now.milliseconds,
                notificationID: request.headers["apns-id"]?.lowercased() ?? uuid(),
                environment: entrance.environment
            )
        case .fcm:
            guard result.status != 200 else {
                return FCMAnswer.accepted(
                    project: destination.project ?? "",
                    isDryRun: result.isDryRun
                )
            }
            return FCMAnswer.refused(
                status: result.status,
                errorCode: result.reason,
                message: result.detail,
                field: result.field
            )
        case .wns:
            return WNSAnswer.make(
                status: result.status,
                description: result.detail,
                to: request
            )
        case .mpns:
            return MPNSChecker.answer(
                status: result.status,
                reason: result.reason,
                to: request
            )
        }
    }

    /// Answers as a rule says, after its delay.
    private func scripted(
        _ rule: Rule,
        _ result: CheckResult,
        _ request: HTTPServerRequest,
        _ destination: Destination,
        _ entrance: ListenerKind,
        _ now: Instant
    ) async -> HTTPServerResponse {
        var result = result
        if let status = rule.status {
            result.status = status
            result.reason = rule.reason
            result.detail = rule.reason
            if status != 200, rule.reason == nil {
                result.reason =
                    destination.provider == .fcm
                    ? FCMAnswer.errorCode(for: status)
                    : destination.provider == .apns ? APNsAnswer.reason(for: status) : nil
            }
            if destination.provider == .fcm { result.detail = nil }
        }
        var response = answer(
            result,
            request,
            destination,
            entrance,
            now,
            timestamp: rule.timestamp
        )
        if destination.tokenEndpoint != nil {
            response = OAuthAnswer.error(
                result.status,
                rule.reason ?? "temporarily_unavailable",
                "Scripted."
            )
        }
        if let body = rule.body {
            response.body = body
            let isJSON = (try? JSONValue.parse(body)) != nil
            response.headers["content-type"] =
                body.isEmpty ? nil : isJSON ? "application/json" : "text/html; charset=UTF-8"
        }
        // WNS sends the same value in two headers, so a script may set only one of them.
        if let state = rule.headers["x-wns-status"] {
            response.headers["x-wns-notificationstatus"] = state
        }
        for field in rule.headers { response.headers[field.name] = field.value }
        response.end(as: rule, request)
        let ended = rule.ending == .answer || rule.ending == .goaway && rule.status != nil
        if destination.tokenEndpoint != nil {
            count(
                destination.provider.rawValue + "Token",
                ended ? "\(response.status)" : rule.ending.rawValue
            )
        } else {
            record(
                request,
                result,
                destination,
                entrance,
                now,
                ended ? response : nil,
                reason: ended ? nil : rule.ending.rawValue
            )
        }
        let delay = Int.random(in: rule.delayMilliseconds)
        if delay > 0 {
            // Only a closed connection ends a delay early, and it gets no answer anyway.
            try? await loop.sleep(for: .milliseconds(delay))
        }
        return response
    }

    // MARK: Records

    private func record(
        _ request: HTTPServerRequest,
        _ result: CheckResult,
        _ destination: Destination,
        _ entrance: ListenerKind,
        _ now: Instant,
        _ response: HTTPServerResponse?,
        reason: String?
    ) {
        let reason = reason ?? result.reason ?? result.detail
        let provider = destination.provider
        received.append(
            ReceivedRequest(
                provider: provider,
                environment: entrance.environment,
                result: result,
                status: response?.status,
                reason: reason,
                at: now.iso8601,
                request: request
            )
        )
        metrics.counter(
            .simulatorRequests,
            ["provider": provider.rawValue, "status": response.map { "\($0.status)" } ?? "none"]
        ).add(1)
        var data: LogData = [
            .provider: .string(provider.rawValue), .environment: .string(entrance.environment),
            .connection: .integer(request.connectionID),
        ]
        if let status = response?.status { data[.status] = .integer(status) }
        if let reason { data[.reason] = .string(reason) }
        log.info("push received", data)
    }

    private func count(_ name: String, _ outcome: String) {
        received.count(name, outcome)
    }

    // MARK: Control

    func receivedListing(after: Int) -> [UInt8] { received.listing(after: after) }

    func forgetReceived() { received.clear() }

    func counts() -> JSONValue { received.countsListing }

    func ruleListing() -> JSONValue { rules.listing }

    func replaceRules(_ value: JSONValue) throws(ControlError) { try rules.replace(with: value) }

    func settingsListing() -> JSONValue {
        [
            "maxConcurrentStreams": JSONValue(settings.maxConcurrentStreams),
            "goawayAfter": settings.goawayAfter.map { JSONValue($0) } ?? .null,
            "accessTokenLifetime": .integer(settings.accessTokenLifetime),
        ]
    }

    /// Changes the given settings; `null` restores the default.
    func change(_ value: JSONValue) throws(ControlError) {
        guard let object = value.object else { throw ControlError("settings", "are not an object") }
        var changed = settings
        let usual = Settings()
        let reader = FieldReader(object, at: "")
        for key in object.keys {
            switch key {
            case "maxConcurrentStreams":
                changed.maxConcurrentStreams =
                    try reader.integer(key, in: 1...100_000) ?? usual.maxConcurrentStreams
            case "goawayAfter":
                changed.goawayAfter = try reader.integer(key, in: 1...Int.max)
            case "accessTokenLifetime":
                changed.accessTokenLifetime =
                    try reader.integer(key, in: 1...31_536_000).map(Int64.init)
                    ?? usual.accessTokenLifetime
            case "revokeAccessTokens":
                guard let isWanted = object[key]?.bool else {
                    throw ControlError(key, "is neither true nor false")
                }
                if isWanted {
                    fcm.revokeTokens()
                    wns.revokeTokens()
                }
            default: throw ControlError(key, "is not known")
            }
        }
        if changed.maxConcurrentStreams != settings.maxConcurrentStreams {
            for (id, state) in connections where state.isRaised {
                for server in servers {
                    server.setMaxConcurrentStreams(changed.maxConcurrentStreams, connection: id)
                }
            }
        }
        settings = changed
    }
}
