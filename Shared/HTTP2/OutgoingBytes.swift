/// Bytes on their way out, taken from the front part by part. What was taken is let go of as it goes,
/// so that a reader who stops before the end keeps no more than twice what he has not read.
package struct OutgoingBytes {
    private var bytes: [UInt8]
    private var taken = 0

    /// Below it, what was taken is not worth a copy of the rest.
    private static let leastLetGo = 256 * 1024

    package init(_ bytes: [UInt8] = []) { self.bytes = bytes }

    /// Not taken yet.
    package var count: Int { bytes.count - taken }

    package var isEmpty: Bool { count == 0 }

    /// In memory.
    package var heldBytes: Int { bytes.count }

    package mutating func append(_ more: [UInt8]) {
        if isEmpty { clear() }
        if bytes.isEmpty { bytes = more } else { bytes.append(contentsOf: more) }
    }

    /// Has more written to the end.
    package mutating func append(_ write: (inout [UInt8]) -> Void) {
        if isEmpty { clear() }
        write(&bytes)
    }

    /// Hands the next bytes to `body`, as an array of their own only where they are not all.
    package mutating func take(upTo limit: Int, _ body: ([UInt8]) -> Void) {
        let end = min(bytes.count, taken + limit)
        if taken == 0, end == bytes.count {
            body(bytes)
        } else {
            body(Array(bytes[taken..<end]))
        }
        took(end - taken)
    }

    /// Copies the next bytes to where they are wanted.
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

    /// Drops all, and of its memory what goes beyond `kept` bytes.
    package mutating func clear(keeping kept: Int = 64 * 1024) {
        bytes.removeAll(keepingCapacity: bytes.capacity <= kept)
        taken = 0
    }
}
