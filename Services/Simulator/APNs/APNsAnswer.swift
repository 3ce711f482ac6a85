import HTTPServer
import JSON

/// The answers of APNs to checked requests and scripted rules.
enum APNsAnswer {
    /// Creates the answer; `timestamp`, in milliseconds since 1970, is for a 410 only.
    static func make(
        status: Int,
        reason: String?,
        timestamp: Int64,
        notificationID: String,
        environment: String
    ) -> HTTPServerResponse {
        var response = HTTPServerResponse(status: status, headers: ["apns-id": notificationID])
        guard status != 200 else {
            if environment == "sandbox" { response.headers.add("apns-unique-id", notificationID) }
            return response
        }
        response.headers.add("content-type", "application/json")
        var body: JSONObject = ["reason": .string(reason ?? Self.reason(for: status))]
        if status == 410 { body["timestamp"] = .integer(timestamp) }
        response.body = body.bytes
        return response
    }

    /// Returns the most likely reason of APNs for a status that was scripted without one.
    static func reason(for status: Int) -> String {
        switch status {
        case 400: "BadDeviceToken"
        case 403: "InvalidProviderToken"
        case 404: "BadPath"
        case 405: "MethodNotAllowed"
        case 410: "Unregistered"
        case 413: "PayloadTooLarge"
        case 429: "TooManyRequests"
        case 500: "InternalServerError"
        default: "ServiceUnavailable"
        }
    }
}
