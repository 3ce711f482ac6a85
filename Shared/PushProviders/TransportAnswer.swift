internal import HTTPTransport
internal import PushCore

extension ProviderAnswer {
    /// Classifies a request without an answer.
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
    /// Whether the connection may still be open but dead, so that its next requests would also get
    /// no answer.
    var discreditsConnection: Bool {
        !requestWasNotSent && (kind == .timeout || kind == .protocolViolation)
    }
}
