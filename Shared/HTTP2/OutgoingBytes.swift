/// Bytes to send, taken from the front part by part. Taken bytes are released on the way, so that a
/// reader that stops early holds at most twice the unread bytes.
package struct OutgoingBytes {
    private var bytes: [UInt8]
    private var taken = 0

    /// The taken bytes below which moving the rest is not worth it.
    private static let leastLetGo = 256 * 1024

    package init(_ bytes: [UInt8] = []) { self.bytes = bytes }

    /// The bytes not taken yet.
    package var count: Int { bytes.count - taken }

    package var isEmpty: Bool { count == 0 }

    /// The bytes in memory.
    package var heldBytes: Int { bytes.count }

    package mutating func append(_ more: [UInt8]) {
        if isEmpty { clear() }
        if bytes.isEmpty { bytes = more } else { bytes.append(contentsOf: more) }
    }

    /// Lets `write` append to the end.
    package mutating func append(_ write: (inout [UInt8]) -> Void) {
        if isEmpty { clear() }
        write(&bytes)
    }

    /// Passes the next bytes to `body`; copies them unless they are all bytes.
    package mutating func take(upTo limit: Int, _ body: ([UInt8]) -> Void) {
        let end = min(bytes.count, taken + limit)
        if taken == 0, end == bytes.count {
            body(bytes)
        } else {
            body(Array(bytes[taken..<end]))
        }
        took(end - taken)
    }

    /// Copies the next bytes into a buffer.
    ///
    /// - Returns: How many.
    package mutating func take(into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        let count = min(buffer.count, self.count)
        unsafe bytes.withUnsafeBytes { all in
            unsafe UnsafeMutableRawBufferPointer(buffer).copyMemory(
                from: UnsafeRawBufferPointer(rebasing: all[taken..<taken + count])
            )
        }
        took(count)
        return count
    }

    private mutating func took(_ count: Int) {
        taken += count
        if taken < bytes.count, taken >= Self.leastLetGo, taken * 2 >= bytes.count {
            bytes = Array(bytes[taken...])
            taken = 0
        }
    }

    /// Drops all bytes, and the memory if it exceeds `kept` bytes.
    package mutating func clear(keeping kept: Int = 64 * 1024) {
        bytes.removeAll(keepingCapacity: bytes.capacity <= kept)
        taken = 0
    }
}
