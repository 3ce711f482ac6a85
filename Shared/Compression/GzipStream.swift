internal import CZlib

/// The bytes around a deflated stream.
enum DeflateFrame {
    case gzip, zlib
}

/// Decompresses gzip part by part, for files of any size. The memory is one part of the input and one of
/// the output, whatever the bytes claim.
///
/// One task at a time uses it: `feed` gets the next part of the input, `next` returns the output until
/// it is empty, then the next part is fed.
@safe
package final class GzipStream {
    private let stream: UnsafeMutablePointer<z_stream>
    private var input: [UInt8] = []
    private var position = 0
    /// Whether the last member has ended. Members may follow one another (RFC 1952).
    package private(set) var isAtEnd = true
    private var mayHaveMore = false

    package convenience init() throws(CompressionError) { try self.init(.gzip) }

    init(_ frame: DeflateFrame) throws(CompressionError) {
        unsafe stream = .allocate(capacity: 1)
        unsafe stream.initialize(to: z_stream())
        let status =
            switch frame {
            case .gzip: unsafe carillon_inflate_init_gzip(stream)
            case .zlib: unsafe carillon_inflate_init_zlib(stream)
            }
        guard status == Z_OK else {
            unsafe stream.deallocate()
            throw .unavailable
        }
    }

    deinit {
        unsafe inflateEnd(stream)
        unsafe stream.deallocate()
    }

    /// Gets the next part of the input, from a byte of an array to its end. The part before must have
    /// been read to its end.
    package func feed(_ part: [UInt8], from start: Int = 0) {
        input = part
        position = start
    }

    /// Whether bytes of the input are not read yet.
    var hasInput: Bool { position < input.count }

    /// Decompresses the next bytes.
    ///
    /// - Parameter maximumBytes: The most bytes of the output, at least 1.
    /// - Returns: Empty if the next part of the input is needed.
    /// - Throws: `CompressionError.broken` if the bytes are not gzip.
    package func next(maximumBytes: Int) throws(CompressionError) -> [UInt8] {
        while position < input.count || mayHaveMore {
            if isAtEnd {
                guard unsafe inflateReset(stream) == Z_OK else { throw .unavailable }
                isAtEnd = false
            }
            let output = try step(maximumBytes)
            if !output.isEmpty { return output }
        }
        return []
    }

    private func step(_ room: Int) throws(CompressionError) -> [UInt8] {
        var status = Z_OK
        let (start, count) = (position, input.count - position)
        var used = 0
        let output = unsafe input.withUnsafeBufferPointer { bytes in
            unsafe [UInt8](unsafeUninitializedCapacity: room) { buffer, written in
                // zlib only reads through it, though its type is mutable.
                let next = unsafe bytes.baseAddress.map { unsafe $0 + start }
                unsafe stream.pointee.next_in = UnsafeMutablePointer(mutating: next)
                unsafe stream.pointee.avail_in = UInt32(clamping: count)
                unsafe stream.pointee.next_out = buffer.baseAddress
                unsafe stream.pointee.avail_out = UInt32(clamping: room)
                unsafe status = CZlib.inflate(stream, Z_NO_FLUSH)
                unsafe used = count - Int(stream.pointee.avail_in)
                unsafe written = room - Int(stream.pointee.avail_out)
            }
        }
        position += used
        mayHaveMore = output.count == room
        switch status {
        case Z_OK: break
        case Z_STREAM_END:
            isAtEnd = true
            mayHaveMore = false
        // No progress is possible without more input.
        case Z_BUF_ERROR: mayHaveMore = false
        case Z_MEM_ERROR: throw .unavailable
        default: throw .broken
        }
        return output
    }
}
