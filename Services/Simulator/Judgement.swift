import HTTPServer
import JSON

/// Which service a request was meant for.
enum Provider: String, Sendable, CaseIterable {
    case apns, fcm, wns, mpns
}

/// What a strict provider makes of one request, before any rule of the operator's is looked at.
/// 200 and no reason: it would be taken.
struct Judgement: Sendable, Equatable {
    var status = 200
    /// The provider's own word for a refusal: APNs' `reason`, FCM's `errorCode`, and so on.
    var reason: String?
    /// A sentence for the client's developer.
    var detail: String?
    /// FCM's `fieldViolations`: where the request is wrong.
    var field: String?
    /// The device: token or channel.
    var token: String?
    /// APNs' topic, or FCM's topic or condition.
    var topic: String?
    /// Whether the request only asks to be checked.
    var isDryRun = false

    /// What a rule's `token` is held against: the device, or whom FCM's message names instead.
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

/// Where a checker stops: it has said why in its judgement.
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

extension Judgement {
    /// Runs the checks in their order; the first that throws is the verdict.
    static func of(_ checks: (inout Judgement) throws(Refusal) -> Void) -> Judgement {
        var judgement = Judgement()
        do throws(Refusal) {
            try checks(&judgement)
        } catch {
            judgement.refuse(error.status, error.reason, error.detail, field: error.field)
        }
        return judgement
    }
}

extension String {
    /// Whether it is of ASCII letters, digits and the marks given, and of a length in the range.
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
