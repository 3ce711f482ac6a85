import Foundation
import Synchronization

/// Ids of objects: made here if an object has none, and otherwise validated.
enum ObjectID {
    private static let process = (0..<5).map { _ in UInt8.random(in: 0...255) }
    private static let counter = Atomic<UInt32>(UInt32.random(in: 0...0xFF_FFFF))

    /// Makes an id of 24 hex digits: four bytes of seconds, five of this process, a counter of
    /// three.
    static func make(at time: Date = Date()) -> String {
        let seconds = UInt32(clamping: Int(time.timeIntervalSince1970))
        let count = counter.wrappingAdd(1, ordering: .relaxed).newValue
        let bytes =
            [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: seconds >> $0) } + process
            + [16, 8, 0].map { UInt8(truncatingIfNeeded: count >> $0) }
        return bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
    }

    /// Returns the form in which the service reports an id: an ObjectId or a UUID in lower case.
    static func canonical(_ value: Any) -> String? {
        guard let text = ((value as? [String: Any])?["$oid"] ?? value) as? String else {
            return nil
        }
        let isObjectID = text.utf8.count == 24 && text.utf8.allSatisfy(isHexDigit)
        guard isObjectID || (text.utf8.count == 36 && UUID(uuidString: text) != nil) else {
            return nil
        }
        return text.lowercased()
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
            UInt8(ascii: "A")...UInt8(ascii: "F"):
            true
        default: false
        }
    }
}
