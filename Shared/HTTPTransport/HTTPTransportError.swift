/// The reason why a call has no answer.
package struct HTTPTransportError: Error, Equatable, Sendable, CustomStringConvertible,
    CustomDebugStringConvertible
{
    package enum Kind: String, CaseIterable, Sendable {
        /// The URL or a header is invalid.
        case invalidRequest = "invalid_request"
        /// The host policy does not allow the target, or it resolved to a private address.
        case hostRefused = "host_refused"
        case resolve
        case connect
        case tls
        case proxy
        case timeout
        case connectionLost = "connection_lost"
        /// The answer is not HTTP, or not the required version.
        case protocolViolation = "protocol"
        case responseTooLarge = "response_too_large"
        /// More calls at once than the configuration allows.
        case overloaded
        /// The client was closed.
        case closed
        /// Withdrawn by its sender before it was sent.
        case withdrawn
        /// libcurl could not be set up: memory, or a certificate that does not load.
        case local
    }

    package var kind: Kind
    /// Whether nothing of the request can have reached the peer: repeating it is always safe.
    package var requestWasNotSent: Bool
    /// libcurl's own message, which may contain the host.
    package var detail: String

    package init(_ kind: Kind, requestWasNotSent: Bool, detail: String = "") {
        self.kind = kind
        self.requestWasNotSent = requestWasNotSent
        self.detail = detail
    }

    /// Whether the request may have reached the peer, so that its result is unknown.
    package var isInDoubt: Bool { !requestWasNotSent }

    package var isRetryable: Bool {
        switch kind {
        case .resolve, .connect, .tls, .proxy, .timeout, .connectionLost, .protocolViolation,
            .overloaded, .closed, .withdrawn:
            true
        case .invalidRequest, .hostRefused, .responseTooLarge, .local:
            false
        }
    }

    package var metricLabel: String { kind.rawValue }

    package var description: String {
        switch kind {
        case .invalidRequest: "the request's URL or headers cannot be used"
        case .hostRefused: "the host is not one that may be called"
        case .resolve: "the host name does not resolve"
        case .connect: "no connection"
        case .tls: "TLS failed"
        case .proxy: "the proxy refused"
        case .timeout: "no answer in time"
        case .connectionLost: "the connection was lost"
        case .protocolViolation: "the peer does not speak HTTP as demanded"
        case .responseTooLarge: "the answer is too large"
        case .overloaded: "too many calls at once"
        case .closed: "the client was closed"
        case .withdrawn: "called back before it was sent"
        case .local: "libcurl could not be set up"
        }
    }

    package var debugDescription: String {
        detail.isEmpty ? description : "\(description): \(detail)"
    }
}
