import Storage

/// A search for many names at once in a string, in time that does not grow with their number. Pure.
///
/// The next eight bytes at each position select the names that could begin there; names of fewer
/// bytes are looked up whole.
struct NameSearch {
    private var long: [UInt64: [[UInt8]]] = [:]
    /// The short names by their length, 1...7.
    private var short: [Set<UInt64>] = Array(repeating: [], count: 8)

    init(_ names: some Sequence<String>) {
        for name in names {
            let bytes = Array(name.utf8)
            switch bytes.count {
            case 0: break
            case 1..<8: short[bytes.count].insert(Self.word(bytes[...], bytes.count))
            default: long[Self.word(bytes[...], 8), default: []].append(bytes)
            }
        }
        for key in long.keys { long[key]?.sort { $0.count > $1.count } }
    }

    /// Whether a string contains any of the names.
    func isFound(in text: [UInt8]) -> Bool {
        text.indices.contains { !lengths(at: $0, in: text).isEmpty }
    }

    /// Replaces every name that is a whole word in a string. A name inside of a longer word stays,
    /// as the word may be another name. Of two names that begin at one position, the longer is
    /// replaced.
    func replaced(in text: String, by mark: String) -> String {
        let bytes = Array(text.utf8)
        var result: [UInt8] = []
        var isChanged = false
        var index = 0
        while index < bytes.count {
            let isStart = index == 0 || !Self.isOfWord(bytes[index - 1])
            let length =
                isStart
                ? lengths(at: index, in: bytes).first { length in
                    index + length == bytes.count || !Self.isOfWord(bytes[index + length])
                } : nil
            if let length {
                result += Array(mark.utf8)
                index += length
                isChanged = true
            } else {
                result.append(bytes[index])
                index += 1
            }
        }
        return isChanged ? String(decoding: result, as: UTF8.self) : text
    }

    /// Returns the lengths of the names that begin at a position, the longest first.
    private func lengths(at start: Int, in text: [UInt8]) -> [Int] {
        let rest = text[start...]
        var found: [Int] = []
        if rest.count >= 8, let candidates = long[Self.word(rest, 8)] {
            for name in candidates where rest.starts(with: name) { found.append(name.count) }
        }
        for length in stride(from: 7, through: 1, by: -1)
        where length <= rest.count && !short[length].isEmpty {
            if short[length].contains(Self.word(rest, length)) { found.append(length) }
        }
        return found
    }

    private static func word(_ bytes: ArraySlice<UInt8>, _ count: Int) -> UInt64 {
        var word: UInt64 = 0
        for index in bytes.startIndex..<bytes.startIndex + count {
            word = word << 8 | UInt64(bytes[index])
        }
        return word
    }

    private static func isOfWord(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "_"), UInt8(ascii: "-"), 0x80...:
            true
        default: false
        }
    }
}
