internal import Glibc
internal import JSON
internal import PushCore

/// The time zones of the machine: the files of IANA's database, read on demand.
///
/// Foundation has them too, but adds 40 MB to each executable. Code with a connection asks Postgres;
/// the code that validates templates has none.
struct TimeZones {
    /// The folder of Debian's `tzdata`.
    static let folder = "/usr/share/zoneinfo"

    private var known: ExactStringMap<ZoneRules?> = [:]

    /// The database's table of zones, without old names.
    static var table: [UInt8] { read("\(folder)/zone1970.tab") ?? [] }

    /// Returns the rules of a zone by its name, as in `Europe/Berlin`; `nil` if it is unknown.
    mutating func zone(_ name: String) -> ZoneRules? {
        // GMT has no rules, so it works without the database.
        if name == "GMT" || name == "UTC" || name == "Etc/GMT" || name == "Etc/UTC" {
            return .gmt
        }
        if let known = known[name] { return known }
        let rules =
            Self.isName(name) ? Self.read("\(Self.folder)/\(name)").flatMap(ZoneRules.init) : nil
        known[name] = .some(rules)
        return rules
    }

    /// Whether the name begins with an upper-case letter, and cannot leave the folder.
    private static func isName(_ name: String) -> Bool {
        guard let first = name.utf8.first, (65...90).contains(first), name.utf8.count <= 64 else {
            return false
        }
        return name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                48...57, UInt8(ascii: "/"), UInt8(ascii: "_"), UInt8(ascii: "-"),
                UInt8(ascii: "+"):
                true
            default: false
            }
        }
    }

    /// Returns the bytes of a file of at most 64 KiB; the largest file of the database has 4 KiB.
    private static func read(_ path: String) -> [UInt8]? {
        let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 64 << 10)
        var count = 0
        while count < bytes.count {
            let more = unsafe bytes.withUnsafeMutableBytes { buffer in
                unsafe Glibc.read(
                    file,
                    buffer.baseAddress.map { unsafe $0 + count },
                    buffer.count - count
                )
            }
            if more < 0 && errno == EINTR { continue }
            guard more >= 0 else { return nil }
            if more == 0 { return Array(bytes[..<count]) }
            count += more
        }
        return nil
    }
}
