import HTTPServer

extension HTTPServerRequest {
    /// Where this service is reached from outside, for each surface's `Location`: the scheme and the
    /// host as the caller wrote them; behind a proxy that ended TLS the scheme of its
    /// `X-Forwarded-Proto`, of several proxies the first one's. Whoever sends a wrong one misleads
    /// himself alone.
    var outsideBase: String {
        let first = header("x-forwarded-proto")?.prefix { $0 != "," }
            .filter { $0 != " " && $0 != "\t" }.lowercased()
        let scheme = first == "https" || first == "http" ? first ?? scheme : scheme
        return "\(scheme)://\(header("host") ?? "localhost")"
    }
}
