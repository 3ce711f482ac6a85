internal import HTTPTransport
internal import PushCore

extension ProviderAnswer {
    /// What it means that a request has no answer at all.
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
    /// Whether the connection may still stand but leads nowhere, so that its next requests would
    /// wait for nothing too.
    var discreditsConnection: Bool {
        !requestWasNotSent && (kind == .timeout || kind == .protocolViolation)
    }
}
