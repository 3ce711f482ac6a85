import JSON
import PushCore

/// An endpoint of an Amazon SNS platform application:
/// `{"EndpointArn": "arn:aws:sns:…:endpoint/APNS/app/<id>", "Attributes": {"Enabled": "true", "Token": "…",
/// "CustomUserData": "…"}}`. The ARN names the platform; its last part becomes the object id.
enum SNSRecord {
    static func fields(_ bytes: [UInt8]) throws(Rejection) -> RecordFields {
        let record = try RecordValue.object(bytes)
        guard let arn = record["EndpointArn"]?.string else {
            throw Rejection("EndpointArn is missing")
        }
        // arn:aws:sns:region:account:endpoint/PLATFORM/application/id
        let parts = arn.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 4, parts[0].hasSuffix(":endpoint") else {
            throw Rejection("EndpointArn must end with endpoint/<platform>/<application>/<id>")
        }
        guard let attributes = record["Attributes"]?.object else {
            throw Rejection("Attributes is missing")
        }
        guard let token = attributes["Token"]?.string, !token.isEmpty else {
            throw Rejection("Attributes.Token is missing")
        }
        var body: JSONObject = [:]
        switch parts[1] {
        case "APNS", "APNS_VOIP": body = ["deviceType": "ios", "apnsEnvironment": "production"]
        case "APNS_SANDBOX", "APNS_VOIP_SANDBOX":
            body = ["deviceType": "ios", "apnsEnvironment": "sandbox"]
        case "MACOS": body = ["deviceType": "macos", "apnsEnvironment": "production"]
        case "MACOS_SANDBOX": body = ["deviceType": "macos", "apnsEnvironment": "sandbox"]
        case "GCM", "FCM": body = ["deviceType": "android"]
        case "WNS": body = ["deviceType": "windows"]
        case "MPNS": body = ["deviceType": "wp"]
        default: throw Rejection("the platform of EndpointArn is not supported")
        }
        switch parts[1] {
        case "GCM", "FCM": body["registrationId"] = .string(token)
        case "WNS", "MPNS": body["subscriptionUri"] = .string(token)
        default: body["deviceToken"] = .string(token)
        }
        let data = attributes["CustomUserData"]?.string ?? ""
        if !data.isEmpty { body["customUserData"] = .string(data) }
        // The AWS CLI prints the attributes as strings.
        let enabled = attributes["Enabled"]
        let isEnabled = enabled?.bool ?? (enabled?.string?.lowercased() != "false")
        return RecordFields(
            body: body,
            rule: .leanCloud,
            objectID: String(parts[3]),
            invalidReason: isEnabled ? nil : "EndpointDisabled"
        )
    }
}
