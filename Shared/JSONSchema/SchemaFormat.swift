/// The formats that are validated.
enum SchemaFormat: String, Sendable, CaseIterable {
    case dateTime = "date-time"
    case date
    case time
    case uuid
    case email
    case uri

    var phrase: String {
        switch self {
        case .dateTime: "must be an RFC 3339 date-time"
        case .date: "must be an RFC 3339 date"
        case .time: "must be an RFC 3339 time"
        case .uuid: "must be a UUID"
        case .email: "must be an e-mail address"
        case .uri: "must be a URI"
        }
    }

    func takes(_ text: String) -> Bool {
        // No format needs more, so a long string costs nothing.
        guard text.utf8.count <= 8192 else { return false }
        var reader = FormatReader(text)
        switch self {
        case .dateTime: return reader.date() && reader.takeT() && reader.time() && reader.isAtEnd
        case .date: return reader.date() && reader.isAtEnd
        case .time: return reader.time() && reader.isAtEnd
        case .uuid: return Self.isUUID(text)
        case .email: return reader.mailbox() && reader.isAtEnd
        case .uri: return reader.uri() && reader.isAtEnd
        }
    }

    static func isObjectID(_ text: String) -> Bool {
        text.utf8.count == 24 && text.utf8.allSatisfy(isHex)
    }

    private static func isUUID(_ text: String) -> Bool {
        guard text.utf8.count == 36 else { return false }
        var place = 0
        for byte in text.utf8 {
            switch place {
            case 8, 13, 18, 23: guard byte == UInt8(ascii: "-") else { return false }
            default: guard isHex(byte) else { return false }
            }
            place += 1
        }
        return true
    }

    static func isDigit(_ byte: UInt8) -> Bool { UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte }

    static func isLetter(_ byte: UInt8) -> Bool {
        UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20
    }

    static func isHex(_ byte: UInt8) -> Bool {
        isDigit(byte) || UInt8(ascii: "a")...UInt8(ascii: "f") ~= byte | 0x20
    }
}

/// Reads a string from its start, part by part.
private struct FormatReader {
    private let bytes: [UInt8]
    private var place = 0

    init(_ text: String) { bytes = Array(text.utf8) }

    var isAtEnd: Bool { place == bytes.count }
    private var next: UInt8? { place < bytes.count ? bytes[place] : nil }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard next == UInt8(ascii: character) else { return false }
        place += 1
        return true
    }

    @discardableResult
    private mutating func takeAll(where isTaken: (UInt8) -> Bool) -> Int {
        let start = place
        while let next, isTaken(next) { place += 1 }
        return place - start
    }

    // MARK: Times

    private mutating func number(_ digits: Int) -> Int? {
        guard bytes.count - place >= digits else { return nil }
        var value = 0
        for byte in bytes[place..<place + digits] {
            guard SchemaFormat.isDigit(byte) else { return nil }
            value = value * 10 + Int(byte - UInt8(ascii: "0"))
        }
        place += digits
        return value
    }

    mutating func date() -> Bool {
        guard let year = number(4), take("-"), let month = number(2), take("-"),
            let day = number(2), 1...12 ~= month
        else { return false }
        let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        let days = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        return 1...days[month - 1] ~= day
    }

    mutating func takeT() -> Bool { take("T") || take("t") }

    mutating func time() -> Bool {
        guard let hour = number(2), take(":"), let minute = number(2), take(":"),
            let second = number(2), hour < 24, minute < 60, second <= 60
        else { return false }
        if take("."), takeAll(where: SchemaFormat.isDigit) == 0 { return false }
        guard let offset = offset() else { return false }
        // A leap second is the last second of a day in UTC.
        let inUTC = (hour * 60 + minute - offset + 2 * 1440) % 1440
        return second < 60 || inUTC == 1439
    }

    /// Reads an offset in minutes.
    private mutating func offset() -> Int? {
        if take("Z") || take("z") { return 0 }
        let isNegative = next == UInt8(ascii: "-")
        guard take("+") || take("-"), let hour = number(2), take(":"), let minute = number(2),
            hour < 24, minute < 60
        else { return nil }
        return (isNegative ? -1 : 1) * (hour * 60 + minute)
    }

    // MARK: E-mail

    private static let atomBytes = Set("!#$%&'*+-/=?^_`{|}~".utf8)

    mutating func mailbox() -> Bool {
        let start = place
        guard next == UInt8(ascii: "\"") ? quoted() : dotAtom() else { return false }
        guard place - start <= 64, take("@") else { return false }
        return take("[") ? literal() : domain()
    }

    private mutating func dotAtom() -> Bool {
        repeat {
            let count = takeAll {
                SchemaFormat.isLetter($0) || SchemaFormat.isDigit($0) || Self.atomBytes.contains($0)
            }
            guard count > 0 else { return false }
        } while take(".")
        return true
    }

    private mutating func quoted() -> Bool {
        guard take("\"") else { return false }
        while let byte = next, 32..<127 ~= byte {
            if take("\"") { return true }
            if take("\\") {
                guard let escaped = next, 32..<127 ~= escaped else { return false }
            }
            place += 1
        }
        return false
    }

    private mutating func domain() -> Bool {
        let start = place
        repeat {
            let label = place
            let count = takeAll {
                SchemaFormat.isLetter($0) || SchemaFormat.isDigit($0) || $0 == UInt8(ascii: "-")
            }
            guard 1...63 ~= count, bytes[label] != UInt8(ascii: "-"),
                bytes[place - 1] != UInt8(ascii: "-")
            else { return false }
        } while take(".")
        return place - start <= 253
    }

    /// Reads an address in brackets, after the opening one.
    private mutating func literal() -> Bool {
        let rest = String(
            decoding: bytes[place...].prefix { $0 != UInt8(ascii: "]") },
            as: UTF8.self
        )
        place += rest.utf8.count
        guard take("]") else { return false }
        if rest.utf8.starts(with: "IPv6:".utf8) { return Self.isIPv6(rest.dropFirst(5)) }
        return Self.isIPv4(rest[...])
    }

    private static func isIPv4(_ text: Substring) -> Bool {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 4
            && parts.allSatisfy { part in
                1...3 ~= part.utf8.count && part.utf8.allSatisfy(SchemaFormat.isDigit)
                    && (Int(part) ?? 256) < 256 && (part.utf8.count == 1 || part.utf8.first != 0x30)
            }
    }

    private static func isIPv6(_ text: Substring) -> Bool {
        var parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count >= 3, parts.count <= 9 else { return false }
        var count = 0
        if let last = parts.last, last.utf8.contains(UInt8(ascii: ".")) {
            guard isIPv4(last) else { return false }
            parts.removeLast()
            count = 2
        }
        var gaps = 0
        for (place, part) in parts.enumerated() where part.isEmpty {
            // A gap at either end leaves two empty parts.
            let isEnd = place == 0 || (place == parts.count - 1 && count == 0)
            if isEnd {
                let neighbour = place == 0 ? 1 : place - 1
                guard parts.indices.contains(neighbour), parts[neighbour].isEmpty else {
                    return false
                }
            } else {
                gaps += 1
            }
        }
        let groups = parts.filter { !$0.isEmpty }
        guard gaps <= 1,
            groups.allSatisfy({ $0.utf8.count <= 4 && $0.utf8.allSatisfy(SchemaFormat.isHex) })
        else { return false }
        count += groups.count
        return gaps == 1 ? count < 8 : count == 8
    }

    // MARK: URI

    private static let unreserved = Set("-._~".utf8)
    private static let subDelimiters = Set("!$&'()*+,;=".utf8)

    /// Skips bytes that are allowed unescaped, and `%` with two hex digits.
    private mutating func takeURI(_ others: String) {
        let others = Array(others.utf8)
        while let byte = next {
            if byte == UInt8(ascii: "%") {
                guard place + 2 < bytes.count, SchemaFormat.isHex(bytes[place + 1]),
                    SchemaFormat.isHex(bytes[place + 2])
                else { return }
                place += 3
            } else if SchemaFormat.isLetter(byte) || SchemaFormat.isDigit(byte)
                || Self.unreserved.contains(byte) || Self.subDelimiters.contains(byte)
                || others.contains(byte)
            {
                place += 1
            } else {
                return
            }
        }
    }

    /// Reads a URI by RFC 3986, with its scheme.
    mutating func uri() -> Bool {
        guard let first = next, SchemaFormat.isLetter(first) else { return false }
        takeAll {
            SchemaFormat.isLetter($0) || SchemaFormat.isDigit($0) || $0 == UInt8(ascii: "+")
                || $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: ".")
        }
        guard take(":") else { return false }
        if bytes[place...].starts(with: "//".utf8) {
            place += 2
            guard authority() else { return false }
            if let next, ![UInt8(ascii: "/"), UInt8(ascii: "?"), UInt8(ascii: "#")].contains(next) {
                return false
            }
        }
        takeURI(":@/")
        if take("?") { takeURI(":@/?") }
        if take("#") { takeURI(":@/?") }
        return true
    }

    private mutating func authority() -> Bool {
        let start = place
        takeURI(":")
        if !take("@") { place = start }
        if take("[") {
            let host = String(
                decoding: bytes[place...].prefix { $0 != UInt8(ascii: "]") },
                as: UTF8.self
            )
            place += host.utf8.count
            guard take("]"), Self.isIPv6(host[...]) || Self.isFuture(host) else { return false }
        } else {
            takeURI("")
        }
        if take(":") { takeAll(where: SchemaFormat.isDigit) }
        return true
    }

    /// Whether it is `v1.anything`, as RFC 3986 reserves it for future addresses.
    private static func isFuture(_ host: String) -> Bool {
        let parts = host.split(separator: ".", maxSplits: 1)
        guard parts.count == 2, parts[0].utf8.count >= 2,
            parts[0].utf8.first.map({ $0 | 0x20 == UInt8(ascii: "v") }) == true
        else { return false }
        return parts[0].utf8.dropFirst().allSatisfy(SchemaFormat.isHex)
            && parts[1].utf8.allSatisfy {
                SchemaFormat.isLetter($0) || SchemaFormat.isDigit($0) || unreserved.contains($0)
                    || subDelimiters.contains($0) || $0 == UInt8(ascii: ":")
            }
    }
}
