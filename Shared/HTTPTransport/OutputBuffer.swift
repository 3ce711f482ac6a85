/// The output of a session that its socket has not taken. Pure.
///
/// Taken bytes are removed. Otherwise the buffer of a slow socket, which never gets empty, would
/// grow for as long as the connection lives.
struct OutputBuffer {
    /// The bytes; only append to them.
    var bytes: [UInt8] = []
    /// The number of taken bytes that are still at the front.
    private(set) var sent = 0

    /// The memory beyond which an empty buffer is released.
    private static let keptBytes = 262_144
    /// The taken bytes below which moving the rest is not worth it.
    private static let smallestMove = 65_536

    var pending: Int { bytes.count - sent }

    /// Passes the next bytes for the socket to `body`.
    func withPending<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        unsafe bytes.withUnsafeBytes { bytes in
            unsafe body(UnsafeRawBufferPointer(rebasing: bytes[sent...]))
        }
    }

    /// Notes taken bytes. They stay at the front until there are at least `smallestMove` of them,
    /// and no fewer than the bytes to move.
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
