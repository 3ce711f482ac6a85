internal import EventLoop
internal import HTTPTransport

/// Asks issuers: over https, at allowed addresses, within limits of size and time. The connections
/// are temporary, as an issuer is asked rarely. Redirects are not followed.
struct IssuerTransport: Sendable {
    private let configuration: HTTPTransportConfiguration
    private let timeout: Duration
    private let loop: EventLoop

    init(
        _ configuration: JWKSConfiguration,
        maximumBytes: Int,
        timeout: Duration,
        on loop: EventLoop
    ) {
        self.configuration = HTTPTransportConfiguration(
            allowedHosts: configuration.hosts,
            caFile: configuration.caFile,
            maximumCalls: 1,
            connectTimeout: JWKSSource.timeout,
            maximumResponseBytes: maximumBytes
        )
        self.timeout = timeout
        self.loop = loop
    }

    static func isHTTPS(_ url: String) -> Bool {
        url.utf8.prefix(8).map { $0 | 0x20 }.elementsEqual("https://".utf8.map { $0 | 0x20 })
    }

    /// Makes one call.
    ///
    /// - Returns: The response, whatever its status.
    func call(
        method: String,
        _ url: String,
        headers: [HTTPField] = [],
        body: [UInt8] = []
    ) async -> Result<HTTPResponse, JWKSFault> {
        // A host that is named exactly would otherwise allow plain http.
        guard Self.isHTTPS(url) else { return .failure(.notAllowed) }
        let request = HTTPRequest(
            method: method,
            url: url,
            headers: [HTTPField("accept", "application/json")] + headers,
            body: body,
            timeout: timeout,
            isRepeatable: method == "GET"
        )
        do throws(HTTPTransportError) {
            let client = try HTTPClient(configuration, on: loop)
            defer { loop.execute { client.close() } }
            return .success(try await client.call(request))
        } catch {
            return .failure(Self.fault(error))
        }
    }

    private static func fault(_ error: HTTPTransportError) -> JWKSFault {
        switch error.kind {
        case .hostRefused, .invalidRequest: .notAllowed
        case .responseTooLarge: .tooLarge
        case .timeout: .timeout
        case .resolve, .connect, .tls, .proxy, .connectionLost, .protocolViolation, .overloaded,
            .closed, .withdrawn, .local:
            .unreachable(error.description)
        }
    }
}
