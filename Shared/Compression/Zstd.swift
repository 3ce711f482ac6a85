internal import CZstd

/// Sole owner of one `ZSTD_DCtx *`.
@safe
struct ZstdInflater: ~Copyable {
    private let context: OpaquePointer

    /// 8 MiB: RFC 8878 section 3.1.1.1.2 requires no decoder to support more, and ours does not.
    private static let windowLog: Int32 = 23

    init() throws(CompressionError) {
        guard let context = unsafe ZSTD_createDCtx() else { throw .unavailable }
        unsafe self.context = context
        unsafe ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, Self.windowLog)
    }

    deinit { unsafe ZSTD_freeDCtx(context) }

    func inflate(_ bytes: [UInt8], maximumBytes: Int) throws(CompressionError) -> [UInt8] {
        var output: [UInt8] = []
        var failure: CompressionError?
        unsafe bytes.withUnsafeBytes { raw in
            var input = unsafe ZSTD_inBuffer(src: raw.baseAddress, size: raw.count, pos: 0)
            unsafe failure = inflateAll(&input, into: &output, maximumBytes: maximumBytes)
        }
        if let failure { throw failure }
        return output
    }

    private func inflateAll(
        _ input: inout ZSTD_inBuffer,
        into output: inout [UInt8],
        maximumBytes: Int
    ) -> CompressionError? {
        while true {
            // One byte beyond the limit distinguishes too large a body from one that just fits.
            let room = min(partBytes, maximumBytes - output.count + 1)
            let start = unsafe input.pos
            var status = 0
            let part = unsafe [UInt8](unsafeUninitializedCapacity: room) { buffer, count in
                var target = unsafe ZSTD_outBuffer(dst: buffer.baseAddress, size: room, pos: 0)
                unsafe status = ZSTD_decompressStream(context, &target, &input)
                unsafe count = target.pos
            }
            output.append(contentsOf: part)
            guard output.count <= maximumBytes else { return .tooLarge }
            guard ZSTD_isError(status) == 0 else { return .broken }
            if unsafe input.pos == input.size {
                if status == 0 { return nil }
                // Inside a frame, and the decoder has no more output.
                if part.count < room { return .broken }
            } else if part.isEmpty, unsafe input.pos == start {
                return .broken
            }
        }
    }
}

func zstdPacked(_ bytes: [UInt8]) throws(CompressionError) -> [UInt8] {
    let capacity = ZSTD_compressBound(bytes.count)
    var status = 0
    let output = unsafe [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
        unsafe bytes.withUnsafeBytes { input in
            unsafe status = ZSTD_compress(
                buffer.baseAddress,
                capacity,
                input.baseAddress,
                input.count,
                3
            )
        }
        count = ZSTD_isError(status) == 0 ? status : 0
    }
    guard ZSTD_isError(status) == 0 else { throw .unavailable }
    return output
}
