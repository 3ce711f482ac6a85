import HTTPServer

/// The requests that web pages of other origins may make of a surface. Their browsers send a
/// preflight first, without credentials; the keys decide what is allowed, not the origin.
package struct CORS: Sendable {
    private let patterns: [String]
    private let methods: String
    private let headers: String
    private let exposed: String?

    /// - Parameters:
    ///   - patterns: The paths that browsers send preflights for.
    ///   - methods: The allowed methods.
    ///   - headers: The allowed request headers.
    ///   - exposed: The response headers that pages may read, in the spelling that clients look
    ///     for.
    package init(
        _ patterns: String...,
        methods: String,
        headers: String,
        exposed: String? = nil
    ) {
        self.init(patterns, methods: methods, headers: headers, exposed: exposed)
    }

    package init(
        _ patterns: [String],
        methods: String,
        headers: String,
        exposed: String? = nil
    ) {
        self.patterns = patterns
        self.methods = methods
        self.headers = headers
        self.exposed = exposed
    }

    var preflights: [SurfaceRoute] {
        patterns.map { pattern in
            SurfaceRoute(
                .options,
                pattern,
                handler: .unauthenticated { _, _ in
                    HTTPServerResponse(
                        status: 200,
                        headers: [
                            "Access-Control-Allow-Methods": methods,
                            "Access-Control-Allow-Headers": headers,
                            "Access-Control-Max-Age": "86400",
                        ]
                    )
                }
            )
        }
    }

    func withCORSHeaders(_ response: consuming HTTPServerResponse) -> HTTPServerResponse {
        let origin = "Access-Control-Allow-Origin"
        if response.headers.contains(origin) { return response }
        response.headers.add(origin, "*")
        if let exposed { response.headers.add("Access-Control-Expose-Headers", exposed) }
        return response
    }
}
