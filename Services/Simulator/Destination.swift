import HTTPServer

/// The target of a request's path, by the providers' own paths.
enum Destination: Equatable, Sendable {
    enum TokenEndpoint: Equatable, Sendable {
        case google, live
        case entra(tenant: String)
    }

    case apns
    case fcm(project: String)
    case wns
    case mpns
    case token(TokenEndpoint)
    case none

    init(_ request: HTTPServerRequest, by entrance: ListenerKind) {
        let segments = request.pathSegments
        switch entrance {
        case .sandbox: self = .apns
        case .plain: self = segments.first == "mpns" ? .mpns : .none
        case .providers: self = Self.atProviders(segments)
        }
    }

    private static func atProviders(_ segments: [String]) -> Destination {
        switch segments.first {
        case "3"?: .apns
        case "wns"?: .wns
        case "mpns"?: .mpns
        case "token"? where segments.count == 1: .token(.google)
        case "accesstoken.srf"? where segments.count == 1: .token(.live)
        case "v1"?
        where segments.count == 4 && segments[1] == "projects" && segments[3] == "messages:send":
            .fcm(project: segments[2])
        case let tenant? where Array(segments.dropFirst()) == ["oauth2", "v2.0", "token"]:
            .token(.entra(tenant: tenant))
        case _: .none
        }
    }

    var tokenEndpoint: TokenEndpoint? {
        guard case .token(let endpoint) = self else { return nil }
        return endpoint
    }

    var project: String? {
        guard case .fcm(let project) = self else { return nil }
        return project
    }

    var provider: Provider {
        switch self {
        case .apns, .none: .apns
        case .fcm, .token(.google): .fcm
        case .wns, .token(.live), .token(.entra): .wns
        case .mpns: .mpns
        }
    }
}
