internal import HTTPTransport
internal import PushCore

extension ProviderAnswer {
    /// Creates the answer for a request that had no response.
    init(_ error: HTTPTransportError) {
        switch error.kind {
        case .invalidRequest, .hostRefused:
            self.init(.rejected, reason: error.metricLabel)
        case .local:
            self.init(.misconfigured, reason: error.metricLabel)
        case .resolve, .connect, .tls, .proxy, .timeout, .connectionLost, .protocolViolation,
            .responseTooLarge, .overloaded, .closed, .withdrawn:
            self.init(
                error.requestWasNotSent ? .notSent : .noAnswer,
                reason: error.metricLabel
            )
        }
    }
}

extension HTTPTransportError {
    /// Whether the connection may be dead although it is open, so that its next requests would get
    /// no answer either.
    var discreditsConnection: Bool {
        !requestWasNotSent && (kind == .timeout || kind == .protocolViolation)
    }
}
