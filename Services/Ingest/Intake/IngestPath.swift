import HTTPServer

/// Paths of intake, with and without a slash too many: clients that glue an address and a path together
/// send such, and a redirect would lose what they post.
enum IngestPath {
    /// All ways to write a pattern.
    static func variants(_ pattern: String) -> [String] {
        [pattern, pattern + "/", "/" + pattern, "/" + pattern + "/"]
    }

    /// A path without the slashes that are too many.
    static func plain(_ path: String) -> String {
        guard path.hasPrefix("//") || path.hasSuffix("/") else { return path }
        return "/" + path.split(separator: "/").joined(separator: "/")
    }

    /// What is said to who tries anything else than to send.
    static let oneWay = "what was sent cannot be read, changed or deleted here: POST alone is taken"
    static let allowed = "POST, OPTIONS"

    /// Any header: an event's extensions are headers, and apps add their own to what Segment's client
    /// sends. To browsers `*` is not `authorization`, and to old ones it is nothing but a name.
    static let allowedHeaders =
        "authorization, content-type, content-encoding, accept, x-lc-id, x-lc-key, x-lc-sign, apikey,"
        + " api-key, anonymousid, x-retry-count, ce-id, ce-source, ce-type, ce-specversion, ce-time, ce-subject,"
        + " ce-dataschema, *"
}

extension HTTPServerRequest {
    /// The media type without its parameters, in lower case; empty where none is said.
    var mediaType: String {
        guard let header = header("content-type") else { return "" }
        return header.prefix { $0 != ";" && $0 != " " && $0 != "," }.lowercased()
    }
}
