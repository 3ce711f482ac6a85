/// Decompresses gzip and zstd bodies, with a limit on the output.
///
/// Authority: the two formats, and zlib's own for protocols that are not HTTP. A body is passed whole
/// and returned whole: one that exceeds its limit is refused as soon as that is known, after at most
/// one buffer beyond it, so neither memory nor time grows with the size that a few bytes claim. No
/// state is retained between bodies.
package enum Compression: String, Sendable, CaseIterable {
    case gzip
    case zstd

    /// Parses a name in `Content-Encoding`, without case; `x-gzip` is gzip's old one.
    package init?(contentCoding name: String) {
        switch name.lowercased() {
        case "gzip", "x-gzip": self = .gzip
        case "zstd": self = .zstd
        default: return nil
        }
    }

    /// Decompresses one gzip member or zstd frame, or several one after another.
    ///
    /// - Throws: `CompressionError.tooLarge` beyond `maximumBytes`, `.broken` if the bytes are not
    ///   of this format, end too early, or have something else after them.
    package func decompress(
        _ bytes: [UInt8],
        maximumBytes: Int
    ) throws(CompressionError) -> [UInt8] {
        switch self {
        case .gzip: try gunzipped(bytes, maximumBytes: maximumBytes)
        case .zstd: try ZstdInflater().inflate(bytes, maximumBytes: maximumBytes)
        }
    }

    package func compress(_ bytes: [UInt8]) throws(CompressionError) -> [UInt8] {
        switch self {
        case .gzip: try gzipped(bytes)
        case .zstd: try zstdPacked(bytes)
        }
    }
}

package enum CompressionError: Error, Equatable, CustomStringConvertible {
    /// The output exceeds the limit.
    case tooLarge
    case broken
    /// The library has no memory for its work.
    case unavailable

    package var description: String {
        switch self {
        case .tooLarge: "the decompressed body exceeds the limit"
        case .broken: "the compressed bytes are broken"
        case .unavailable: "out of memory"
        }
    }
}

/// The output bytes of one step.
let partBytes = 64 * 1024
