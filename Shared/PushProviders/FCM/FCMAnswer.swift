internal import HTTPTransport
internal import JSON
internal import PushCore

/// The classification of an FCM answer: by `FcmError.errorCode`, else by the status in the error's
/// body, else by the HTTP status. Pure.
///
/// - SeeAlso: Firebase, "ErrorCode" and "Scale with FCM".
struct FCMAnswer: Equatable {
    var answer: ProviderAnswer
    /// Whether the access token was rejected: renew it and send again, once.
    var wantsRenewal = false

    /// The shortest delays before a retry: after a 5xx, and after a quota error.
    private static let minimumServerWait = Duration.seconds(10)
    private static let quotaWait = Duration.seconds(60)

    static func classify(_ response: HTTPResponse, at now: Instant) -> FCMAnswer {
        let body = try? JSONValue.parse(response.body, maximumDepth: 16)
        if response.status == 200 {
            return FCMAnswer(
                answer: ProviderAnswer(
                    .accepted,
                    status: 200,
                    providerMessageID: body?["name"]?.string
                )
            )
        }
        let error = body?["error"]
        let details = error?["details"]?.array ?? []
        let errorCode = detail("google.firebase.fcm.v1.FcmError", details)?["errorCode"]?.string
        let status = error?["status"]?.string
        let retryAfter = response.retryAfter(at: now) ?? retryInfo(details)
        let isUnauthenticated =
            errorCode == nil
            && (status == "UNAUTHENTICATED" || status == nil && response.status == 401)
        let message = error?["message"]?.string ?? ""
        let outcome =
            errorCode.flatMap { byErrorCode($0, response.status, message, details, retryAfter) }
            ?? status.flatMap { byStatus($0, retryAfter) }
            ?? byHTTPStatus(response.status, retryAfter)
        return FCMAnswer(
            answer: ProviderAnswer(
                outcome,
                status: response.status,
                reason: errorCode ?? status
            ),
            wantsRenewal: isUnauthenticated
        )
    }

    private static func byErrorCode(
        _ code: String,
        _ httpStatus: Int,
        _ message: String,
        _ details: [JSONValue],
        _ retryAfter: Duration?
    ) -> ProviderOutcome? {
        switch code {
        case "INVALID_ARGUMENT":
            isTokenFault(message, details) ? .unregistered(since: nil) : .rejected
        case "THIRD_PARTY_AUTH_ERROR", "APNS_AUTH_ERROR": .misconfigured
        case "UNREGISTERED": .unregistered(since: nil)
        case "SENDER_ID_MISMATCH": .mismatched
        case "QUOTA_EXCEEDED":
            isOfDevice(details)
                ? .throttled(retryAfter: retryAfter ?? quotaWait)
                : .unavailable(retryAfter: retryAfter ?? quotaWait)
        case "INTERNAL", "UNAVAILABLE":
            .unavailable(retryAfter: retryAfter ?? minimumServerWait)
        case "UNSPECIFIED_ERROR":
            httpStatus >= 500
                ? .unavailable(retryAfter: retryAfter ?? minimumServerWait) : .rejected
        default: nil
        }
    }

    private static func byStatus(_ status: String, _ retryAfter: Duration?) -> ProviderOutcome? {
        switch status {
        case "INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE": .rejected
        // A 404 without FcmError means a wrong project or URL, never a missing device.
        case "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND": .misconfigured
        case "RESOURCE_EXHAUSTED": .unavailable(retryAfter: retryAfter ?? quotaWait)
        case "INTERNAL", "UNAVAILABLE", "UNKNOWN", "DEADLINE_EXCEEDED", "ABORTED":
            .unavailable(retryAfter: retryAfter ?? minimumServerWait)
        default: nil
        }
    }

    private static func byHTTPStatus(_ status: Int, _ retryAfter: Duration?) -> ProviderOutcome {
        switch status {
        case 429: .unavailable(retryAfter: retryAfter ?? quotaWait)
        case 500...: .unavailable(retryAfter: retryAfter ?? minimumServerWait)
        case 401, 403, 404: .misconfigured
        case 400..<500: .rejected
        default: .misconfigured
        }
    }

    /// Whether the token is invalid. A bad argument is a fault of the token only if the answer says
    /// so, else of the payload.
    private static func isTokenFault(_ message: String, _ details: [JSONValue]) -> Bool {
        if message.contains("registration token is not a valid FCM registration token") {
            return true
        }
        // Only the token is at fault, and no other field of the message.
        let violations = detail("google.rpc.BadRequest", details)?["fieldViolations"]?.array ?? []
        if !violations.isEmpty, violations.allSatisfy({ $0["field"] == "message.token" }) {
            return true
        }
        guard let apns = detail("google.firebase.fcm.v1.ApnsError", details) else { return false }
        switch apns["reason"]?.string {
        case "BadDeviceToken", "DeviceTokenNotForTopic": return true
        case "Unregistered": return apns["statusCode"]?.integer == 410
        default: return false
        }
    }

    /// Whether it is the quota of one device, not of the project or the topic.
    private static func isOfDevice(_ details: [JSONValue]) -> Bool {
        let violations = detail("google.rpc.QuotaFailure", details)?["violations"]?.array ?? []
        return !violations.isEmpty
            && violations.allSatisfy { violation in
                ["subject", "description"].contains {
                    violation[$0]?.string?.lowercased().contains("device") == true
                }
            }
    }

    private static func detail(_ type: String, _ details: [JSONValue]) -> JSONValue? {
        details.first { $0["@type"]?.string?.hasSuffix(type) == true }
    }

    /// Reads `google.rpc.RetryInfo`, whose delay is a string such as `"30s"`.
    private static func retryInfo(_ details: [JSONValue]) -> Duration? {
        guard let text = detail("google.rpc.RetryInfo", details)?["retryDelay"]?.string,
            text.hasSuffix("s"), let seconds = Double(text.dropLast()), seconds >= 0,
            seconds <= 86_400
        else { return nil }
        return .milliseconds(Int64(seconds * 1000))
    }
}
