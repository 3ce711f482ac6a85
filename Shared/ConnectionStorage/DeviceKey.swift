import Cryptography

/// The name of a device in the tables of messages: the first 16 bytes of the SHA-256 of its app, NUL
/// and its `installationId`, which is a bearer secret and is not stored here.
package struct DeviceKey: Hashable, Sendable {
    package static let count = 16

    private let high: UInt64
    private let low: UInt64

    package init(app: String, installationID: String) {
        self.init(sha256(Array(app.utf8) + [0] + Array(installationID.utf8)))
    }

    /// Reads the first 16 bytes; missing ones count as 0.
    package init(_ bytes: [UInt8]) {
        func number(_ range: Range<Int>) -> UInt64 {
            range.reduce(0) { $0 << 8 | UInt64($1 < bytes.count ? bytes[$1] : 0) }
        }
        high = number(0..<8)
        low = number(8..<16)
    }

    package var bytes: [UInt8] {
        [high, low].flatMap { number in
            (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * UInt64($0))) }
        }
    }

    /// The key of an installation, as SQL. `row` is a row of `installations`.
    package static func sql(of row: String) -> String {
        """
        substring(sha256(convert_to(\(row).app, 'UTF8') || '\\x00'::bytea
            || convert_to(\(row).installation_id, 'UTF8')) FROM 1 FOR \(count))
        """
    }
}
