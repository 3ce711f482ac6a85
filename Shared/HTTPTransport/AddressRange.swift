/// Distinguishes addresses of the public Internet from all others. A channel URI must resolve to a
/// public address: otherwise a device's registration could make us call our own network.
///
/// - SeeAlso: IANA's special-purpose address registries (RFC 6890).
enum AddressRange {
    static func isPublic(ipv4 address: UInt32) -> Bool {
        !reserved.contains { address >> (32 - $0.bits) == $0.prefix >> (32 - $0.bits) }
    }

    /// Checks 16 bytes in network order.
    static func isPublic(ipv6 bytes: [UInt8]) -> Bool {
        guard bytes.count == 16 else { return false }
        let embedded = bytes[12...].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        if bytes[0..<10].allSatisfy({ $0 == 0 }), bytes[10] == 0xFF, bytes[11] == 0xFF {
            return isPublic(ipv4: embedded)
        }
        // 64:ff9b::/96 (NAT64) embeds an IPv4 address.
        if bytes[0..<4] == [0x00, 0x64, 0xFF, 0x9B], bytes[4..<12].allSatisfy({ $0 == 0 }) {
            return isPublic(ipv4: embedded)
        }
        // 2002::/16, 6to4.
        if bytes[0] == 0x20, bytes[1] == 0x02 {
            return isPublic(ipv4: bytes[2..<6].reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
        }
        // Only 2000::/3 is global unicast; 2001::/23 (Teredo and others) and 2001:db8::/32 are not.
        guard bytes[0] & 0xE0 == 0x20 else { return false }
        if bytes[0] == 0x20, bytes[1] == 0x01 {
            return bytes[2] >= 0x02 && !(bytes[2] == 0x0D && bytes[3] == 0xB8)
        }
        return true
    }

    private static let reserved: [(prefix: UInt32, bits: UInt32)] = [
        (0x0000_0000, 8),  // this network
        (0x0A00_0000, 8),  // private
        (0x6440_0000, 10),  // carrier-grade translation
        (0x7F00_0000, 8),  // loopback
        (0xA9FE_0000, 16),  // link local, cloud metadata
        (0xAC10_0000, 12),  // private
        (0xC000_0000, 24),  // protocol assignments
        (0xC000_0200, 24),  // documentation
        (0xC058_6300, 24),  // 6to4 relays
        (0xC0A8_0000, 16),  // private
        (0xC612_0000, 15),  // benchmarks
        (0xC633_6400, 24),  // documentation
        (0xCB00_7100, 24),  // documentation
        (0xE000_0000, 4),  // multicast
        (0xF000_0000, 4),  // reserved, broadcast
    ]
}
