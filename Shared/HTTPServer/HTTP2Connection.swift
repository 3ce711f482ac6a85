final class HTTP2Connection: ProtocolDriver {
    static let preface: [UInt8] = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)
    init(_ connection: Connection) { connection.abort() }
    func setMaxConcurrentStreams(_ count: Int) {}
    func goaway(lastStreamID: Int?, code: UInt32, data: [UInt8]) {}
    func received(_ bytes: UnsafeRawBufferPointer) {}
    func inputEnded() {}
    func outputDrained() {}
    func fillOutput() {}
    func answered(_ ticket: Int, _ response: HTTPServerResponse) {}
    func tick(_ now: ContinuousClock.Instant) {}
    func beginStop() {}
}
