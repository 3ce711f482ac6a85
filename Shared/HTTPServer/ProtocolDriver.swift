/// What reads and writes the bytes of one connection, once it is known which protocol they are.
protocol ProtocolDriver: AnyObject {
    func received(_ bytes: UnsafeRawBufferPointer)
    /// The peer sends no more; it may still read.
    func inputEnded()
    /// What a slow peer held up is written.
    func outputDrained()
    /// Puts into the connection's output what it has been holding back.
    func fillOutput()
    func answered(_ ticket: Int, _ response: HTTPServerResponse)
    /// Sends the head of an answer whose body follows in parts; false when none is to follow.
    func startStream(_ ticket: Int, _ response: HTTPServerResponse) -> Bool
    func sendPart(_ ticket: Int, _ bytes: [UInt8])
    /// The bytes of an answer that the peer has not taken.
    func backlog(_ ticket: Int) -> Int
    /// Of answers that it has not put into the connection's output: in memory, and not let through.
    var heldBytes: Int { get }
    var unsentBytes: Int { get }
    /// Of answers what it has put there, ever; nil where that is all that it writes.
    var sentBytes: Int? { get }
    /// Calls off the answers of which something is left that the peer does not let through.
    func dropUnread()
    /// Goes on with what was postponed so that others get their turn.
    func takeTurn()
    /// Ends a streamed answer: whole, or so that the peer can tell that it is not.
    func endStream(_ ticket: Int, isWhole: Bool, isLast: Bool)
    func tick(_ now: ContinuousClock.Instant)
    /// Takes no new request, and finishes the connection when those it has are answered.
    func beginStop()
    /// How many requests the peer may have under way at once, from now on. Nothing where the protocol
    /// has one at a time.
    func allowStreams(_ count: Int)
    /// Takes no request beyond `lastStreamID` (nil: the newest that has come), and closes the connection
    /// when the others are answered. Nothing where the protocol cannot say so.
    func sayGoodbye(lastStreamID: Int?, code: UInt32, data: [UInt8])
}
