import PushCore
import PushProviders
import PushStorage

/// The clients of apps, and the settings that decide how a client is used.
@DispatchLoop
protocol ClientDirectory: AnyObject, Sendable {
    /// Whether the app's credentials are fresh, as `CredentialCache.isLoaded`.
    func isLoaded(_ app: String) -> Bool
    /// Returns a delivery's client, as `CredentialCache.client`.
    func client(for delivery: Delivery, apnsTopic: String?) -> CredentialCache.Choice
    /// Returns why a provider is switched off, as `CredentialCache.switchedOff`.
    func switchedOff(_ provider: Platform, of app: String) -> String?
    /// Whether payloads include the push's id, as `CredentialCache.includesPushIDs`.
    func includesPushIDs(_ app: String) -> Bool
}

/// The clients that send the members of one batch, and the values that members of one push share.
/// Looks them up once for members that are alike.
@DispatchLoop
struct RouteTable {
    /// The members that one client sends. A class, as each member is added to it.
    final class Route {
        let client: any ProviderClient
        let health: ClientHealth
        let platform: Platform
        fileprivate(set) var positions: [Int] = []
        fileprivate(set) var notifications: [OutgoingNotification] = []
        /// Whether a second copy overwrites the first, by member.
        fileprivate(set) var overwrites: [Bool] = []

        fileprivate init(
            _ client: any ProviderClient,
            _ health: ClientHealth,
            _ platform: Platform,
            room: Int
        ) {
            self.client = client
            self.health = health
            self.platform = platform
            positions.reserveCapacity(room)
            notifications.reserveCapacity(room)
            overwrites.reserveCapacity(room)
        }
    }

    /// The reason why members of one kind are not sent.
    enum Obstacle: Error {
        /// The app's credentials must be read again.
        case unready
        /// A missing credential, or content that cannot be rendered.
        case failure(reason: String)
    }

    /// The route of members of one app, platform, environment and topic.
    private struct Exit {
        let app: String
        let platform: Platform
        let environment: PushEnvironment
        let apnsTopic: String?
        let route: Result<Route, Obstacle>

        func takes(_ delivery: Delivery, _ apnsTopic: String?) -> Bool {
            platform == delivery.device.provider && environment == delivery.device.environment
                && self.apnsTopic == apnsTopic && app == delivery.app
        }
    }

    /// The client, template and payload of members of one push, exit and language.
    private struct Way {
        let platform: Platform
        let environment: PushEnvironment
        let apnsTopic: String?
        let variant: String?
        var route: Result<(Route, PayloadTemplate), Obstacle>
        /// The payload, if all members get the same.
        var shared: RenderedPayload?

        func takes(_ delivery: Delivery, _ apnsTopic: String?, _ variant: String?) -> Bool {
            platform == delivery.device.provider && environment == delivery.device.environment
                && self.apnsTopic == apnsTopic && self.variant == variant
        }
    }

    private let credentials: any ClientDirectory
    private let room: Int
    private let now: Instant
    private(set) var routes: [Route] = []
    private var exits: [Exit] = []
    private var ways: [Way] = []
    private var lastExit = 0
    private var lastWay = 0
    /// The push that `ways` belongs to.
    private var context: PushContext?

    /// - Parameters:
    ///   - credentials: The source of clients.
    ///   - room: The most members of the batch.
    ///   - now: The time, for templates that expire.
    init(_ credentials: any ClientDirectory, room: Int, at now: Instant) {
        self.credentials = credentials
        self.room = room
        self.now = now
    }

    /// Returns the route of a member, and its payload.
    mutating func find(
        _ delivery: Delivery,
        of context: PushContext,
        _ health: ClientHealth
    ) throws(Obstacle) -> (Route, RenderedPayload, overwrites: Bool) {
        if self.context !== context {
            ways.removeAll(keepingCapacity: true)
            self.context = context
        }
        let topic = delivery.apnsTopic ?? context.apnsTopic
        let variant = context.variant(for: delivery.locale, delivery.values)
        if lastWay >= ways.count || !ways[lastWay].takes(delivery, topic, variant) {
            if let known = ways.firstIndex(where: { $0.takes(delivery, topic, variant) }) {
                lastWay = known
            } else {
                ways.append(makeWay(delivery, topic, variant, context, health))
                lastWay = ways.count - 1
            }
        }
        let (route, template) = try ways[lastWay].route.get()
        if let shared = ways[lastWay].shared {
            return (route, shared, template.repeatOverwrites)
        }
        do {
            let payload = try template.payload(values: delivery.values, badge: delivery.badge)
            return (route, payload, template.repeatOverwrites)
        } catch {
            throw .failure(reason: error.description)
        }
    }

    private mutating func makeWay(
        _ delivery: Delivery,
        _ topic: String?,
        _ variant: String?,
        _ context: PushContext,
        _ health: ClientHealth
    ) -> Way {
        var way = Way(
            platform: delivery.device.provider,
            environment: delivery.device.environment,
            apnsTopic: topic,
            variant: variant,
            route: .failure(.unready)
        )
        switch exit(of: delivery, topic, health) {
        case .failure(let obstacle): way.route = .failure(obstacle)
        case .success(let route):
            do {
                let template = try context.template(
                    delivery.device.provider,
                    variant: variant,
                    includesPushID: credentials.includesPushIDs(delivery.app),
                    at: now
                )
                way.route = .success((route, template))
                way.shared = template.isPersonal ? nil : try? template.payload()
            } catch {
                way.route = .failure(.failure(reason: error.description))
            }
        }
        return way
    }

    private mutating func exit(
        of delivery: Delivery,
        _ topic: String?,
        _ health: ClientHealth
    ) -> Result<Route, Obstacle> {
        if lastExit < exits.count, exits[lastExit].takes(delivery, topic) {
            return exits[lastExit].route
        }
        if let known = exits.firstIndex(where: { $0.takes(delivery, topic) }) {
            lastExit = known
            return exits[known].route
        }
        lastExit = exits.count
        exits.append(
            Exit(
                app: delivery.app,
                platform: delivery.device.provider,
                environment: delivery.device.environment,
                apnsTopic: topic,
                route: makeRoute(delivery, topic, health)
            )
        )
        return exits[lastExit].route
    }

    private mutating func makeRoute(
        _ delivery: Delivery,
        _ topic: String?,
        _ health: ClientHealth
    ) -> Result<Route, Obstacle> {
        // A member may have waited until its app's cache entry became stale. If the connection to
        // Postgres was lost, the NOTIFY of a change may be lost too.
        guard credentials.isLoaded(delivery.app) else { return .failure(.unready) }
        switch credentials.client(for: delivery, apnsTopic: topic) {
        case .misconfigured(let reason): return .failure(.failure(reason: reason))
        case .client(let client):
            // Several topics may have the same client.
            if let known = routes.first(where: { $0.client === client }) { return .success(known) }
            let route = Route(client, health, delivery.device.provider, room: room)
            routes.append(route)
            return .success(route)
        }
    }

    /// Adds a member to its route.
    func add(
        _ notification: OutgoingNotification,
        at position: Int,
        overwrites: Bool,
        to route: Route
    ) {
        route.positions.append(position)
        route.notifications.append(notification)
        route.overwrites.append(overwrites)
    }
}
