import Compression

/// Packs bytes as clients do: zlib's frame around what gzip deflates.
func zlib(_ bytes: [UInt8]) -> [UInt8] {
    guard let packed = try? Compression.gzip.compress(bytes) else { return [] }
    // gzip has 10 bytes before, and 8 after.
    return [0x78, 0x9C] + packed[10..<packed.count - 8] + adler(bytes)
}

private func adler(_ bytes: [UInt8]) -> [UInt8] {
    var (low, high) = (1 as UInt32, 0 as UInt32)
    for byte in bytes {
        low = (low + UInt32(byte)) % 65_521
        high = (high + low) % 65_521
    }
    let sum = high << 16 | low
    return (0..<4).map { UInt8(truncatingIfNeeded: sum >> (24 - 8 * $0)) }
}
