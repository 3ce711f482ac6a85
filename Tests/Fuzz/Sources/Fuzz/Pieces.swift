/// Ways to split the same bytes into pieces, as a network might. The cuts depend on the bytes only,
/// so that a failed input fails again.
enum Pieces: CaseIterable {
    case single
    case few
    case many

    func cut(_ bytes: [UInt8]) -> [ArraySlice<UInt8>] {
        var random = Splitmix(seed: bytes)
        var pieces: [ArraySlice<UInt8>] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            let longest =
                switch self {
                case .single: 1
                case .few: max(2, bytes.count / 2)
                case .many: 16
                }
            let count = Int(random.next() % UInt64(longest)) + 1
            pieces.append(rest.prefix(count))
            rest = rest.dropFirst(count)
        }
        return pieces
    }
}

/// Pseudo-random numbers whose seed is a hash of some bytes (FNV-1a).
struct Splitmix {
    private var state: UInt64 = 0xCBF2_9CE4_8422_2325

    init(seed: [UInt8]) {
        for byte in seed { state = (state ^ UInt64(byte)) &* 0x100_0000_01B3 }
    }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = (state ^ state >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }
}
