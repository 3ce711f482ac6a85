/// Takes gzip and zstd bodies apart, with a bound on what comes out.
///
/// Authority: the two formats. A body is given whole and comes back whole: what is larger than its
/// bound is refused as soon as that is known, after at most one buffer beyond it, so neither memory
/// nor time grows with what a few bytes claim to be. Nothing here keeps state between bodies.
package enum Compression: String, Sendable, CaseIterable {
    case gzip
    case zstd

    /// The name in `Content-Encoding`, without case; `x-gzip` is gzip's old one.
    package init?(contentCoding name: String) {
        switch name.lowercased() {
        case "gzip", "x-gzip": self = .gzip
        case "zstd": self = .zstd
        default: return nil
        }
    }

    /// Gives back what was compressed: one gzip member or zstd frame, or several one after another.
    ///
    /// - Throws: `CompressionError.tooLarge` beyond `maximumBytes`, `.broken` when the bytes are not
    ///   of this format, end too early, or have something else after them.
    package func decompress(
        _ bytes: [UInt8],
        maximumBytes: Int
    ) throws(CompressionError) -> [UInt8] {
        switch self {
        case .gzip: try GzipInflater().inflate(bytes, maximumBytes: maximumBytes)
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
    /// More comes out than may.
    case tooLarge
    case broken
    /// The library has no memory for its work.
    case unavailable

    package var description: String {
        switch self {
        case .tooLarge: "more comes out of the compressed bytes than may"
        case .broken: "the compressed bytes are broken"
        case .unavailable: "there is no memory for the work"
        }
    }
}

/// How much comes out at a time.
let partBytes = 64 * 1024
