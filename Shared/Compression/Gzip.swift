internal import CZlib

/// Sole owner of one `z_stream` that inflates.
@safe
struct GzipInflater: ~Copyable {
    /// zlib stores a pointer to it, so it has an address of its own.
    private let stream: UnsafeMutablePointer<z_stream>

    init() throws(CompressionError) {
        unsafe stream = .allocate(capacity: 1)
        unsafe stream.initialize(to: z_stream())
        guard unsafe carillon_inflate_init_gzip(stream) == Z_OK else {
            unsafe stream.deallocate()
            throw .unavailable
        }
    }

    deinit {
        unsafe inflateEnd(stream)
        unsafe stream.deallocate()
    }

    func inflate(_ bytes: [UInt8], maximumBytes: Int) throws(CompressionError) -> [UInt8] {
        guard let inputCount = UInt32(exactly: bytes.count) else { throw .tooLarge }
        var output: [UInt8] = []
        var failure: CompressionError?
        unsafe bytes.withUnsafeBufferPointer { input in
            // zlib only reads through it, though its type is mutable.
            unsafe stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
            unsafe stream.pointee.avail_in = inputCount
            failure = inflateAll(into: &output, maximumBytes: maximumBytes)
        }
        if let failure { throw failure }
        return output
    }

    private func inflateAll(
        into output: inout [UInt8],
        maximumBytes: Int
    ) -> CompressionError? {
        while true {
            var status = Z_OK
            // One byte beyond the limit distinguishes too large a body from one that just fits.
            let room = min(partBytes, maximumBytes - output.count + 1)
            let part = unsafe [UInt8](unsafeUninitializedCapacity: room) { buffer, count in
                unsafe stream.pointee.next_out = buffer.baseAddress
                unsafe stream.pointee.avail_out = UInt32(clamping: room)
                unsafe status = CZlib.inflate(stream, Z_NO_FLUSH)
                unsafe count = room - Int(stream.pointee.avail_out)
            }
            output.append(contentsOf: part)
            guard output.count <= maximumBytes else { return .tooLarge }
            switch status {
            case Z_OK:
                continue
            case Z_STREAM_END:
                // RFC 1952: members may follow one another.
                if unsafe stream.pointee.avail_in == 0 { return nil }
                guard unsafe inflateReset(stream) == Z_OK else { return .broken }
            case Z_MEM_ERROR:
                return .unavailable
            default:
                // `Z_BUF_ERROR` too: the input has ended before its member.
                return .broken
            }
        }
    }
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
