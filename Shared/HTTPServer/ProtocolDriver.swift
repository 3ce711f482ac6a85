/// Reads and writes the bytes of one connection, once its protocol is known.
protocol ProtocolDriver: AnyObject {
    func received(_ bytes: UnsafeRawBufferPointer)
    /// Notes that the peer sends no more; it may still read.
    func inputEnded()
    /// Notes that the output that a slow peer held up is written.
    func outputDrained()
    /// Moves pending output into the connection's output.
    func fillOutput()
    func answered(_ ticket: Int, _ response: HTTPServerResponse)
    /// Sends the head of a response whose body follows in parts; false if no body follows.
    func startStream(_ ticket: Int, _ response: HTTPServerResponse) -> Bool
    func sendPart(_ ticket: Int, _ bytes: [UInt8])
    /// Returns the bytes of a response that the peer has not taken.
    func backlog(_ ticket: Int) -> Int
    /// The memory of responses that are not yet in the connection's output, and (`unsentBytes`)
    /// their bytes that flow control holds back.
    var heldBytes: Int { get }
    var unsentBytes: Int { get }
    /// The total of response bytes put into the connection's output; nil if the driver writes
    /// nothing but responses.
    var sentBytes: Int? { get }
    /// Cancels the responses with bytes that the peer's flow control holds back.
    func discardUnread()
    /// Continues with work that was postponed for other connections' turns.
    func takeTurn()
    /// Ends a streamed response: whole, or so that the peer notices the truncation.
    func endStream(_ ticket: Int, isWhole: Bool, isLast: Bool)
    func tick(_ now: ContinuousClock.Instant)
    /// Takes no new request, and finishes the connection when the outstanding ones are answered.
    func beginStop()
    /// Sets how many requests the peer may have in flight at once. Does nothing if the protocol has
    /// one request at a time.
    func allowStreams(_ count: Int)
    /// Takes no request beyond `lastStreamID` (nil: the newest so far), and closes the connection
    /// when the others are answered. Does nothing if the protocol has no such message.
    func sendGoAway(lastStreamID: Int?, code: UInt32, data: [UInt8])
    /// Notes that the connection is gone.
    func connectionClosed()
}

extension ProtocolDriver {
    func connectionClosed() {}
}
