import HTTPServer
import JSON

/// The service that a request was meant for.
enum Provider: String, Sendable, CaseIterable {
    case apns, fcm, wns, mpns
}

/// The result of a strict provider's own checks, before scripted rules apply. 200 without a reason: the
/// request is accepted.
struct CheckResult: Sendable, Equatable {
    var status = 200
    /// The provider's own code of a refusal: APNs' `reason`, FCM's `errorCode`, and so on.
    var reason: String?
    /// A sentence for the client's developer.
    var detail: String?
    /// The place of the error, as in FCM's `fieldViolations`.
    var field: String?
    /// The device: token or channel.
    var token: String?
    /// APNs' topic, or FCM's topic or condition.
    var topic: String?
    /// Whether the request only asks to be validated.
    var isDryRun = false

    /// Returns the string that a rule's `token` must match: the device, or the other target of FCM's message.
    func target(of provider: Provider) -> String? {
        token ?? (provider == .fcm ? topic : nil)
    }

    mutating func refuse(
        _ status: Int,
        _ reason: String?,
        _ detail: String? = nil,
        field: String? = nil
    ) {
        self.status = status
        self.reason = reason
        self.detail = detail
        self.field = field
    }
}

/// The error with which a checker stops; it becomes the result.
struct Refusal: Error {
    let status: Int
    let reason: String?
    var detail: String?
    var field: String?

    init(_ status: Int, _ reason: String?, _ detail: String? = nil, field: String? = nil) {
        self.status = status
        self.reason = reason
        self.detail = detail
        self.field = field
    }
}

extension CheckResult {
    /// Runs the checks in order; the first error becomes the result.
    static func of(_ checks: (inout CheckResult) throws(Refusal) -> Void) -> CheckResult {
        var result = CheckResult()
        do throws(Refusal) {
            try checks(&result)
        } catch {
            result.refuse(error.status, error.reason, error.detail, field: error.field)
        }
        return result
    }
}

extension String {
    /// Whether the string consists of ASCII letters, digits and the given marks, with a length in the range.
    func consists(of marks: String = "", length: ClosedRange<Int>) -> Bool {
        length.contains(utf8.count)
            && utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"):
                    true
                default: marks.utf8.contains(byte)
                }
            }
    }

    var isHexadecimal: Bool {
        utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "A")...UInt8(ascii: "F"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: false
            }
        }
    }

    var isDigits: Bool {
        !isEmpty && utf8.allSatisfy { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
    }
}
