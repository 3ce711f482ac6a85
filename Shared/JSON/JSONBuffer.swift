/// A growing buffer for JSON output, sole owner of its memory.
///
/// An array checks on each append that it is uniquely referenced, which is a third of the time of
/// writing.
@safe
struct JSONBuffer: ~Copyable {
    private var start: UnsafeMutablePointer<UInt8>
    private var capacity: Int
    private var count = 0

    init(capacity: Int) {
        self.capacity = max(capacity, 16)
        unsafe start = .allocate(capacity: self.capacity)
    }

    deinit { unsafe start.deallocate() }

    /// The written bytes; valid until the buffer changes.
    var bytes: UnsafeBufferPointer<UInt8> {
        unsafe UnsafeBufferPointer(start: start, count: count)
    }

    /// Reserves room so that `more` bytes can be put without a check.
    @inline(__always)
    private mutating func reserve(_ more: Int) {
        if capacity - count < more { grow(by: more) }
    }

    @inline(never)
    private mutating func grow(by more: Int) {
        let larger = max(capacity * 2, count + more)
        let moved = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
        unsafe moved.update(from: start, count: count)
        unsafe start.deallocate()
        unsafe start = moved
        capacity = larger
    }

    @inline(__always)
    private mutating func put(_ byte: UInt8) {
        unsafe start[count] = byte
        count += 1
    }

    @inline(__always)
    mutating func append(_ byte: UInt8) {
        reserve(1)
        put(byte)
    }

    mutating func append(_ source: UnsafeBufferPointer<UInt8>) {
        guard let first = source.baseAddress else { return }
        reserve(source.count)
        unsafe (start + count).update(from: first, count: source.count)
        count += source.count
    }

    mutating func append(_ text: StaticString) {
        unsafe append(UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    /// Appends a string as it is.
    mutating func append(_ text: String) {
        var text = text
        text.withUTF8 { unsafe append($0) }
    }

    mutating func append(_ value: Int64) {
        // The longest is `Int64.min`: a sign and 19 digits.
        reserve(20)
        if value < 0 { put(UInt8(ascii: "-")) }
        var rest = value.magnitude
        var end = count + 1
        while rest >= 10 {
            rest /= 10
            end += 1
        }
        count = end
        rest = value.magnitude
        repeat {
            end -= 1
            unsafe start[end] = UInt8(truncatingIfNeeded: rest % 10) + UInt8(ascii: "0")
            rest /= 10
        } while rest > 0
    }

    /// Appends a string in quotes, with the required escapes and no others.
    mutating func appendQuoted(_ text: String) {
        var text = text
        text.withUTF8 { source in
            reserve(source.count + 2)
            put(UInt8(ascii: "\""))
            var from = 0
            var index = 0
            while true {
                index = unsafe Self.firstEscaped(in: source, from: index)
                unsafe append(UnsafeBufferPointer(rebasing: source[from..<index]))
                guard index < source.count else { break }
                appendEscape(of: unsafe source[index])
                index += 1
                from = index
            }
            append(UInt8(ascii: "\""))
        }
    }

    /// Returns the place of the first byte that must be escaped, checked eight at a time; the end
    /// if there is none.
    private static func firstEscaped(in source: UnsafeBufferPointer<UInt8>, from: Int) -> Int {
        var index = from
        let bytes = UnsafeRawBufferPointer(source)
        while index + 8 <= source.count {
            let word = unsafe bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            if mustEscape(word) { break }
            index += 8
        }
        while index < source.count {
            let byte = unsafe source[index]
            if byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { break }
            index += 1
        }
        return index
    }

    private mutating func appendEscape(of byte: UInt8) {
        reserve(6)
        put(UInt8(ascii: "\\"))
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"): put(byte)
        case 0x08: put(UInt8(ascii: "b"))
        case 0x09: put(UInt8(ascii: "t"))
        case 0x0A: put(UInt8(ascii: "n"))
        case 0x0C: put(UInt8(ascii: "f"))
        case 0x0D: put(UInt8(ascii: "r"))
        default:
            append("u00")
            append(byte < 0x10 ? UInt8(ascii: "0") : UInt8(ascii: "1"))
            let low = byte & 0x0F
            append(low < 10 ? low + 0x30 : low - 10 + 0x61)
        }
    }
}

/// Whether one of eight bytes is a control character, a quote or a backslash.
///
/// The subtraction sets the high bit of each byte that was smaller. A borrow reaches only bytes
/// above a byte that was found. A byte whose high bit was set before needs no escape.
@inline(__always)
func mustEscape(_ word: UInt64) -> Bool {
    let ones: UInt64 = 0x0101_0101_0101_0101
    let quotes = word ^ (ones &* UInt64(UInt8(ascii: "\"")))
    let slashes = word ^ (ones &* UInt64(UInt8(ascii: "\\")))
    let found =
        ((word &- ones &* 0x20) & ~word) | ((quotes &- ones) & ~quotes)
        | ((slashes &- ones) & ~slashes)
    return found & (ones &* 0x80) != 0
}
