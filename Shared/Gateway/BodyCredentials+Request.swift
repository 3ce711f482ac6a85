package import HTTPServer

extension BodyCredentials {
    /// The most bytes of a compressed body that are inflated for an unauthenticated client; a
    /// client with a larger body must send its credentials in headers.
    package static let maximumInflatedBytes = 64 * 1024

    /// Reads the credentials of a request that may be compressed; `nil` also if the body is broken,
    /// or inflates to more than `maximumInflatedBytes`. `requireBodySearchAllowed` gets the number
    /// of bytes to scan.
    package init?(
        _ request: HTTPServerRequest,
        named names: [StaticString],
        requireBodySearchAllowed: (_ bytes: Int) throws -> Void
    ) rethrows {
        let isCoded = request.isBodyCoded
        try requireBodySearchAllowed(isCoded ? Self.maximumInflatedBytes : request.body.count)
        guard let body = try? request.decodedBody(maximumBytes: Self.maximumInflatedBytes) else {
            return nil
        }
        self.init(body, named: names)
    }
}
