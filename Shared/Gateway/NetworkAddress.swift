/// An IPv4 or IPv6 address: 128 bits, an IPv4 one as `::ffff:a.b.c.d`. Each request is counted by
/// it, so it needs no heap memory.
package struct NetworkAddress: Hashable, Sendable {
    fileprivate let high: UInt64
    fileprivate let low: UInt64

    private static let mappedIPv4: UInt64 = 0xffff << 32

    /// - Returns: `nil` if it is not an address; a zone after `%` is ignored.
    package init?(_ text: String) {
        let address = text.prefix { $0 != "%" }
        if let four = Self.four(address) {
            self.init(high: 0, low: Self.mappedIPv4 | Self.number(four[...]))
        } else if let sixteen = Self.sixteen(address) {
            self.init(high: Self.number(sixteen[..<8]), low: Self.number(sixteen[8...]))
        } else {
            return nil
        }
    }

    private init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.reduce(0) { $0 << 8 | UInt64($1) }
    }

    package var isIPv4: Bool { high == 0 && low >> 32 == 0xffff }

    /// The part that identifies a subscriber: a whole IPv4 address, or the first 64 bits of an IPv6
    /// one.
    package var subscriber: NetworkAddress {
        isIPv4 ? self : NetworkAddress(high: high, low: 0)
    }

    private static func four(_ text: Substring) -> [UInt8]? {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 4 else { return nil }
        var bytes: [UInt8] = []
        for part in parts {
            guard (1...3).contains(part.utf8.count),
                part.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let byte = UInt8(part)
            else { return nil }
            bytes.append(byte)
        }
        return bytes
    }

    private static func sixteen(_ text: Substring) -> [UInt8]? {
        guard let gap = text.firstRange(of: "::") else {
            guard let all = groups(text), all.count == 16 else { return nil }
            return all
        }
        let (head, tail) = (text[..<gap.lowerBound], text[gap.upperBound...])
        guard let before = head.isEmpty ? [] : groups(head),
            let after = tail.isEmpty ? [] : groups(tail), before.count + after.count <= 14
        else { return nil }
        return before + [UInt8](repeating: 0, count: 16 - before.count - after.count) + after
    }

    private static func groups(_ text: Substring) -> [UInt8]? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        var bytes: [UInt8] = []
        for (index, part) in parts.enumerated() {
            if index == parts.count - 1, let four = four(part) {
                bytes += four
                continue
            }
            guard (1...4).contains(part.utf8.count), part.utf8.allSatisfy({ $0 != 0x2b }),
                let group = UInt16(part, radix: 16)
            else { return nil }
            bytes += [UInt8(group >> 8), UInt8(group & 0xff)]
        }
        return bytes
    }
}

extension NetworkAddress: CustomStringConvertible {
    package var description: String {
        if isIPv4 {
            return stride(from: 24, through: 0, by: -8).map { shift in
                String(UInt8(truncatingIfNeeded: low >> UInt64(shift)))
            }.joined(separator: ".")
        }
        return [high, low].flatMap { half in
            stride(from: 48, through: 0, by: -16).map { shift in
                String(UInt16(truncatingIfNeeded: half >> UInt64(shift)), radix: 16)
            }
        }.joined(separator: ":")
    }
}

/// Addresses with a common prefix: `10.0.0.0/8`, `fd00::/8`, or one address.
package struct AddressRange: Hashable, Sendable {
    private let first: NetworkAddress
    private let bits: Int

    package init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let address = NetworkAddress(String(parts[0])) else { return nil }
        let width = address.isIPv4 ? 32 : 128
        guard parts.count == 2 else {
            self.init(first: address, bits: 128)
            return
        }
        guard let length = Int(parts[1]), (0...width).contains(length) else { return nil }
        self.init(first: address, bits: length + 128 - width)
    }

    private init(first: NetworkAddress, bits: Int) {
        self.first = first
        self.bits = bits
    }

    package func contains(_ address: NetworkAddress) -> Bool {
        let high = (first.high ^ address.high) & Self.mask(min(bits, 64))
        let low = (first.low ^ address.low) & Self.mask(max(bits - 64, 0))
        return high == 0 && low == 0
    }

    /// Returns a mask of the first `bits` of 64 bits.
    private static func mask(_ bits: Int) -> UInt64 {
        bits == 0 ? 0 : .max << UInt64(64 - bits)
    }
}
