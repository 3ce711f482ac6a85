import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

private let now = Instant(seconds: 1_700_000_000)

@Suite("Retry-After", .timeLimit(.minutes(1))) struct RetryAfterTests {
    @Test("Both forms of Retry-After are read, and anything else is ignored")
    func forms() {
        let cases: [(String, Duration?)] = [
            ("0", .zero), ("120", .seconds(120)), ("99999999999999999999", .seconds(86_400)),
            ("Tue, 14 Nov 2023 22:13:50 GMT", .seconds(30)),
            ("Tue, 14 Nov 2023 22:13:00 GMT", .zero), ("Sun, 06 Nov 1994 08:49:37 GMT", .zero),
            ("Wed, 14 Nov 2029 22:13:50 GMT", .seconds(86_400)), ("", nil), ("-1", nil),
            ("soon", nil), ("1.5", nil), ("Tue, 14 Foo 2023 22:13:50 GMT", nil),
            ("Tuesday, 14-Nov-23 22:13:50 GMT", nil),
        ]
        for (text, expected) in cases {
            #expect(parseRetryAfter(text, at: now) == expected, "\(text)")
        }
    }
}

@Suite("Attempts without an answer", .timeLimit(.minutes(1))) struct TransportAnswers {
    @Test("An attempt that may have reached the provider is never called unsent")
    func outcomes() {
        for kind in HTTPTransportError.Kind.allCases {
            let sent = ProviderAnswer(HTTPTransportError(kind, requestWasNotSent: false)).outcome
            let unsent = ProviderAnswer(HTTPTransportError(kind, requestWasNotSent: true)).outcome
            switch kind {
            case .invalidRequest, .hostRefused: #expect(sent == .rejected && unsent == .rejected)
            case .local: #expect(sent == .misconfigured && unsent == .misconfigured)
            case .resolve, .connect, .tls, .proxy, .timeout, .connectionLost, .protocolViolation,
                .responseTooLarge, .overloaded, .closed, .withdrawn:
                #expect(sent == .noAnswer && unsent == .notSent)
            }
        }
    }
}
