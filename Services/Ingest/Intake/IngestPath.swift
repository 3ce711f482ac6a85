import Gateway
import HTTPServer

/// The paths of intake, with and without a superfluous slash. Clients that join an address and a
/// path send such a slash, and a redirect would lose the body.
enum IngestPath {
    /// Returns all variants of a pattern.
    static func variants(_ pattern: String) -> [String] {
        [pattern, pattern + "/", "/" + pattern, "/" + pattern + "/"]
    }

    /// The security schemes of the service's description, of which a sender needs one.
    static let senders = [["appKey"], ["apiKey"]]

    /// Returns a route for each variant, described at the first.
    static func routes(
        _ pattern: String,
        maximumBodyBytes: Int,
        _ description: RouteDescription,
        _ handler:
            @escaping @Sendable (HTTPServerRequest, RequestContext) async throws ->
            HTTPServerResponse
    ) -> [SurfaceRoute] {
        variants(pattern).map { variant in
            let route = SurfaceRoute(
                .post,
                variant,
                action: variant == pattern ? nil : "POST \(pattern)",
                maximumBodyBytes: maximumBodyBytes,
                handler: .unauthenticated(handler)
            )
            return variant == pattern ? route.described(description) : route
        }
    }

    /// Returns a path without superfluous slashes.
    static func plain(_ path: String) -> String {
        guard path.hasPrefix("//") || path.hasSuffix("/") else { return path }
        return "/" + path.split(separator: "/").joined(separator: "/")
    }

    /// The error for any other operation than sending.
    static let oneWay = "what was sent cannot be read, changed or deleted here: POST alone is taken"
    static let allowed = "POST, OPTIONS"

    /// The headers that a page may send: any, as an event's extensions are headers, and apps add
    /// their own to those of Segment's client. Known headers are listed beside `*`: browsers do not
    /// include `authorization` in it, and old browsers read it as the name of a header.
    static let allowedHeaders =
        "authorization, content-type, content-encoding, accept, x-lc-id, x-lc-key, x-lc-sign, apikey,"
        + " api-key, anonymousid, x-retry-count, ce-id, ce-source, ce-type, ce-specversion, ce-time, ce-subject,"
        + " ce-dataschema, *"
}

extension HTTPServerRequest {
    /// The media type without its parameters, in lower case; empty if the header is missing.
    var mediaType: String {
        guard let header = header("content-type") else { return "" }
        return header.prefix { $0 != ";" && $0 != " " && $0 != "," }.lowercased()
    }
}
