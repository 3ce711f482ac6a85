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
