/// What a session has said and its socket has not taken. Pure.
///
/// What was taken does not stay: a socket that is slow and always given more would otherwise make
/// it grow for as long as the connection lives.
struct OutputBuffer {
    /// Append to it; nothing else.
    var bytes: [UInt8] = []
    /// How many at the front were taken, and are still there.
    private(set) var sent = 0

    /// A buffer that has grown beyond this is given back once it is empty.
    private static let keptBytes = 262_144
    /// Less than this is not worth moving the rest.
    private static let smallestMove = 65_536

    var pending: Int { bytes.count - sent }

    /// The next bytes for the socket.
    func withPending<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        unsafe bytes.withUnsafeBytes { bytes in
            unsafe body(UnsafeRawBufferPointer(rebasing: bytes[sent...]))
        }
    }

    /// What was taken stays until it is `smallestMove`, and no less than what has to be moved then.
    mutating func took(_ count: Int) {
        sent += count
        if sent == bytes.count {
            bytes.removeAll(keepingCapacity: bytes.capacity <= Self.keptBytes)
            sent = 0
        } else if sent >= Self.smallestMove, sent * 2 >= bytes.count {
            bytes.removeFirst(sent)
            sent = 0
        }
    }
}
