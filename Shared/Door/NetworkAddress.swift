/// An IPv4 or IPv6 address: 16 bytes, an IPv4 one as `::ffff:a.b.c.d`.
package struct NetworkAddress: Hashable, Sendable {
    package let bytes: [UInt8]

    /// - Returns: `nil` for what is none; a zone behind `%` is left out.
    package init?(_ text: String) {
        let address = text.prefix { $0 != "%" }
        if let four = Self.four(address) {
            bytes = [UInt8](repeating: 0, count: 10) + [0xff, 0xff] + four
        } else if let sixteen = Self.sixteen(address) {
            bytes = sixteen
        } else {
            return nil
        }
    }

    private init(bytes: [UInt8]) { self.bytes = bytes }

    package var isIPv4: Bool {
        bytes[..<10].allSatisfy { $0 == 0 } && bytes[10] == 0xff && bytes[11] == 0xff
    }

    /// What one subscriber has: an IPv4 address whole, of an IPv6 one the first 64 bits.
    package var subscriber: NetworkAddress {
        isIPv4 ? self : NetworkAddress(bytes: bytes[..<8] + [UInt8](repeating: 0, count: 8))
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
        if isIPv4 { return bytes[12...].map(String.init).joined(separator: ".") }
        return stride(from: 0, to: 16, by: 2).map { index in
            String(UInt16(bytes[index]) << 8 | UInt16(bytes[index + 1]), radix: 16)
        }.joined(separator: ":")
    }
}

/// Addresses that begin alike: `10.0.0.0/8`, `fd00::/8`, or one address.
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
        let whole = bits / 8
        guard first.bytes[..<whole] == address.bytes[..<whole] else { return false }
        guard bits % 8 != 0 else { return true }
        let mask = UInt8(truncatingIfNeeded: 0xff00 >> (bits % 8))
        return first.bytes[whole] & mask == address.bytes[whole] & mask
    }
}
