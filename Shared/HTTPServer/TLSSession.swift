internal import Observability

final class TLSContextSource: Sendable {
    init(_ tls: HTTPServerConfiguration.TLS, log: Log) throws {
        throw HTTPServerError("TLS is not available yet")
    }
    func makeSession() -> TLSSession? { nil }
    func close() {}
}
final class TLSSession {
    var isEstablished: Bool { false }
    var peerSubject: String? { nil }
    var negotiatedProtocol: HTTPServerConfiguration.ApplicationProtocol? { nil }
    var peerHasFinished: Bool { false }
    func receive(_ bytes: UnsafeRawBufferPointer) -> Result<[UInt8], HTTPServerError> {
        .success([])
    }
    func send(_ bytes: [UInt8]) {}
    func finish() {}
    func drain() -> [UInt8]? { nil }
}
