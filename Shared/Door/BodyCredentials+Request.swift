package import HTTPServer

extension BodyCredentials {
    /// Of a compressed body no more is inflated for a stranger; who sends a larger one has to say by
    /// its headers who he is.
    package static let maximumInflatedBytes = 64 * 1024

    /// Reads those of a request that may be compressed; `nil` also where it is broken, or inflates to
    /// more than `maximumInflatedBytes`. `beforeSearching` is told how many bytes are to be passed over.
    package init?(
        _ request: HTTPServerRequest,
        named names: [StaticString],
        beforeSearching: (_ bytes: Int) throws -> Void
    ) rethrows {
        let isCoded = request.isBodyCoded
        try beforeSearching(isCoded ? Self.maximumInflatedBytes : request.body.count)
        guard let body = try? request.decodedBody(maximumBytes: Self.maximumInflatedBytes) else {
            return nil
        }
        self.init(body, named: names)
    }
}
