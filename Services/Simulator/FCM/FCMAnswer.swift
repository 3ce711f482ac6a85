import Cryptography
import HTTPServer
import JSON

/// OAuth's answers, the same for Google and Microsoft.
enum OAuthAnswer {
    static func error(_ status: Int, _ error: String, _ description: String) -> HTTPServerResponse {
        .json(["error": .string(error), "error_description": .string(description)], status: status)
    }
}

/// The answers of FCM v1 to checked requests and scripted rules.
enum FCMAnswer {
    static func accepted(project: String, isDryRun: Bool) -> HTTPServerResponse {
        let id = isDryRun ? "fake_message_id" : "0:" + Hex.encode(randomBytes(16))
        return .json(["name": .string("projects/\(project)/messages/\(id)")])
    }

    /// Returns the error as `google.rpc.Status` with its details: FCM's own `errorCode`, if it has one, and
    /// the `field` of a `BadRequest`.
    static func refused(
        status: Int,
        errorCode: String?,
        message: String?,
        field: String?
    ) -> HTTPServerResponse {
        var details: [JSONValue] = []
        if let errorCode {
            details.append([
                "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError",
                "errorCode": .string(errorCode),
            ])
        }
        let message = message ?? Self.message(for: errorCode, status: status)
        if let field {
            details.append([
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [
                    ["field": .string(field), "description": .string(message)]
                ],
            ])
        }
        if errorCode == "QUOTA_EXCEEDED" {
            details.append([
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [["subject": "device", "description": .string(message)]],
            ])
        }
        var error: JSONObject = [
            "code": JSONValue(status), "message": .string(message),
            "status": .string(Self.status(of: status)),
        ]
        if !details.isEmpty { error["details"] = .array(details) }
        return .json(["error": .object(error)], status: status, contentType: contentType)
    }

    private static let contentType = "application/json; charset=UTF-8"

    /// Returns the most likely error code of FCM for a status that was scripted without one.
    static func errorCode(for status: Int) -> String? {
        switch status {
        case 400: "INVALID_ARGUMENT"
        case 403: "SENDER_ID_MISMATCH"
        case 404: "UNREGISTERED"
        case 429: "QUOTA_EXCEEDED"
        case 500: "INTERNAL"
        case 503: "UNAVAILABLE"
        default: nil
        }
    }

    private static func message(for errorCode: String?, status: Int) -> String {
        switch errorCode {
        case "UNREGISTERED": "Requested entity was not found."
        case "SENDER_ID_MISMATCH": "SenderId mismatch"
        case "QUOTA_EXCEEDED": "Quota exceeded."
        case "THIRD_PARTY_AUTH_ERROR": "Auth error from APNS or Web Push Service"
        case "INTERNAL": "Internal error encountered."
        case "UNAVAILABLE": "The service is currently unavailable."
        case "INVALID_ARGUMENT": "Request contains an invalid argument."
        default: statusText(status)
        }
    }

    /// Returns the name in `google.rpc.Code` for an HTTP status.
    private static func status(of status: Int) -> String {
        switch status {
        case 400: "INVALID_ARGUMENT"
        case 401: "UNAUTHENTICATED"
        case 403: "PERMISSION_DENIED"
        case 404: "NOT_FOUND"
        case 429: "RESOURCE_EXHAUSTED"
        case 500: "INTERNAL"
        case 503: "UNAVAILABLE"
        default: "UNKNOWN"
        }
    }
}
