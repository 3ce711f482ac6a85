internal import CZlib

/// Decompresses a whole body, of one member or several.
func gunzipped(_ bytes: [UInt8], maximumBytes: Int) throws(CompressionError) -> [UInt8] {
    guard !bytes.isEmpty else { throw .broken }
    let stream = try GzipStream()
    stream.feed(bytes)
    var output: [UInt8] = []
    while true {
        // One byte beyond the limit distinguishes too large a body from one that just fits.
        let part = try stream.next(maximumBytes: min(partBytes, maximumBytes - output.count + 1))
        if part.isEmpty { break }
        output.append(contentsOf: part)
        guard output.count <= maximumBytes else { throw .tooLarge }
    }
    // Otherwise the input has ended before its member.
    guard stream.isAtEnd else { throw .broken }
    return output
}

/// Decompresses one stream of zlib's own format (RFC 1950), after which nothing may follow.
///
/// - Parameters:
///   - bytes: An array that has the stream at its end.
///   - start: The first byte of the stream.
///   - maximumBytes: The limit of the output, which is never reserved in advance.
/// - Returns: The decompressed bytes.
/// - Throws: As `Compression.decompress`.
package func inflatedZlib(
    _ bytes: [UInt8],
    from start: Int,
    maximumBytes: Int
) throws(CompressionError) -> [UInt8] {
    let stream = try GzipStream(.zlib)
    stream.feed(bytes, from: start)
    var output: [UInt8] = []
    repeat {
        // One byte beyond the limit distinguishes too large a body from one that just fits.
        let part = try stream.next(maximumBytes: min(partBytes, maximumBytes - output.count + 1))
        if part.isEmpty { break }
        output.append(contentsOf: part)
        guard output.count <= maximumBytes else { throw .tooLarge }
    } while !stream.isAtEnd
    guard stream.isAtEnd, !stream.hasInput, start < bytes.count else { throw .broken }
    return output
}

func gzipped(_ bytes: [UInt8]) throws(CompressionError) -> [UInt8] {
    guard let inputCount = UInt32(exactly: bytes.count) else { throw .tooLarge }
    var stream = unsafe z_stream()
    guard unsafe carillon_deflate_init_gzip(&stream) == Z_OK else { throw .unavailable }
    defer { unsafe deflateEnd(&stream) }
    let capacity = unsafe Int(deflateBound(&stream, UInt(inputCount)))
    var status = Z_OK
    let output = unsafe [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
        unsafe bytes.withUnsafeBufferPointer { input in
            unsafe stream.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
            unsafe stream.avail_in = inputCount
            unsafe stream.next_out = buffer.baseAddress
            unsafe stream.avail_out = UInt32(clamping: capacity)
            unsafe status = deflate(&stream, Z_FINISH)
            unsafe count = capacity - Int(stream.avail_out)
        }
    }
    guard status == Z_STREAM_END else { throw .unavailable }
    return output
}
