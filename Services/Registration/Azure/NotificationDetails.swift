import JSON
import PushCore
import PushStorage

/// The progress of a send, in the form of .NET's data contract: elements in its order, and no empty ones.
struct NotificationDetails {
    let id: String
    let hub: String
    let host: String
    /// One push, or one for each name of a template.
    let pushes: [StoredPush]
    let counts: [DeliveryCount]

    private static let namespace =
        "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"

    private enum State: String {
        case enqueued = "Enqueued"
        case processing = "Processing"
        case completed = "Completed"
        case abandoned = "Abandoned"
        case noTargetFound = "NoTargetFound"
        case cancelled = "Cancelled"
    }

    private var state: State {
        let statuses = pushes.map(\.status)
        if statuses.contains(.sending) || statuses.contains(.planning) { return .processing }
        if statuses.contains(.queued) || statuses.contains(.scheduled) {
            return statuses.contains(.done) ? .processing : .enqueued
        }
        if statuses.allSatisfy({ $0 == .cancelled }) { return .cancelled }
        let targeted = pushes.reduce(0) { $0 + $1.ledger.targeted }
        if statuses.allSatisfy({ $0 == .failed }) { return .abandoned }
        return targeted == 0 ? .noTargetFound : .completed
    }

    private var format: String {
        let source = pushes[0].eventSource.split(separator: "/")
        return source.count > 2 ? String(source[2]) : ""
    }

    /// The format of the message; for a template the platforms of its devices, if they are known.
    private var targetPlatforms: String {
        guard format == HubMessage.Format.template.rawValue else { return format }
        let names: [String] = Platform.allCases.compactMap { platform in
            guard counts.contains(where: { $0.platform == platform }) else { return nil }
            return switch platform {
            case .apns: "appletemplate"
            case .fcm: "fcmv1template"
            case .wns: "windowstemplate"
            case .mpns: "windowsphonetemplate"
            // Azure has no name for it.
            case .connection: nil
            }
        }
        return names.isEmpty ? format : names.joined(separator: ",")
    }

    var xml: String {
        let first = pushes[0]
        var xml = "<NotificationDetails xmlns=\"\(Self.namespace)\">"
        xml += AzureXML.element("NotificationId", id)
        let location = "sb://\(host)/\(hub)/messages/\(id)?api-version=2015-01"
        xml += AzureXML.element("Location", location)
        xml += AzureXML.element("State", state.rawValue)
        xml += AzureXML.element("EnqueueTime", first.createdAt.iso8601)
        let begun = pushes.filter { [.sending, .done].contains($0.status) }
        if let start = begun.map({ $0.releaseAt ?? $0.createdAt }).min() {
            xml += AzureXML.element("StartTime", max(start, first.createdAt).iso8601)
        }
        let ends = pushes.compactMap(\.finishedAt)
        if ends.count == pushes.count, let end = ends.max() {
            xml += AzureXML.element("EndTime", end.iso8601)
        }
        xml += AzureXML.element("NotificationBody", body)
        if let tags = first.request["tags"]?.string { xml += AzureXML.element("Tags", tags) }
        xml += AzureXML.element("TargetPlatforms", targetPlatforms)
        xml += outcomes("ApnsOutcomeCounts", of: .apns)
        xml += outcomes("MpnsOutcomeCounts", of: .mpns)
        xml += outcomes("WnsOutcomeCounts", of: .wns)
        let isLegacy = format == "gcm"
        if isLegacy { xml += outcomes("GcmOutcomeCounts", of: .fcm) }
        if !isLegacy { xml += outcomes("FcmV1OutcomeCounts", of: .fcm) }
        return xml + "</NotificationDetails>"
    }

    /// The message as sent to the push services; for a template, its properties.
    private var body: String {
        let request = pushes[0].request
        if let properties = request["template"]?["properties"] { return properties.text }
        let native = request["native"]
        if let payload = native?["apns"]?["payload"] { return payload.text }
        if let envelope = native?["fcm"] { return envelope.text }
        return native?["wns"]?["body"]?.string ?? native?["mpns"]?["body"]?.string ?? ""
    }

    private func outcomes(_ name: String, of platform: Platform) -> String {
        var sums: [(outcome: HubOutcome, count: Int)] = []
        for count in counts where count.platform == platform {
            guard let outcome = HubOutcome(count) else { continue }
            if let index = sums.firstIndex(where: { $0.outcome == outcome }) {
                sums[index].count += count.count
            } else {
                sums.append((outcome, count.count))
            }
        }
        guard !sums.isEmpty else { return "" }
        let list = sums.map { sum in
            "<Outcome>\(AzureXML.element("Name", sum.outcome.rawValue))"
                + "<Count>\(sum.count)</Count></Outcome>"
        }
        return "<\(name)>\(list.joined())</\(name)>"
    }
}

/// The outcomes of a test send.
struct NotificationOutcome {
    private let rows: [DeliveryRow]

    init(_ rows: [DeliveryRow]) { self.rows = rows }

    var xml: String {
        let results = rows.map { row -> (platform: String, row: DeliveryRow, outcome: String) in
            let outcome = HubOutcome(row.count)?.rawValue ?? "Pending"
            let platform =
                switch row.count.platform {
                case .apns: "apple"
                case .fcm: "gcm"
                case .wns: "windows"
                case .mpns: "windowsphone"
                case .connection: "connection"
                }
            return (platform, row, outcome)
        }
        let successes = results.count { $0.outcome == HubOutcome.success.rawValue }
        var xml = "<NotificationOutcome"
        xml += " xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\">"
        xml += "<Success>\(successes)</Success><Failure>\(results.count - successes)</Failure>"
        xml += "<Results>"
        for result in results {
            xml += "<RegistrationResult>"
            xml += AzureXML.element("ApplicationPlatform", result.platform)
            xml += AzureXML.element("PnsHandle", result.row.token)
            xml += AzureXML.element("RegistrationId", result.row.installationID ?? "")
            xml += AzureXML.element("Outcome", result.outcome)
            xml += "</RegistrationResult>"
        }
        return xml + "</Results></NotificationOutcome>"
    }
}

/// Azure's names of outcomes.
enum HubOutcome: String {
    case success = "Success"
    case wrongToken = "WrongToken"
    case badChannel = "BadChannel"
    case expiredChannel = "ExpiredChannel"
    case invalidCredentials = "InvalidCredentials"
    case invalidFormat = "InvalidNotificationFormat"
    case invalidSize = "InvalidNotificationSize"
    case throttled = "Throttled"
    case dropped = "Dropped"
    case abandoned = "AbandonedNotificationMessages"
    case serverError = "PnsServerError"
    case unreachable = "PnsUnreachable"
    case unknown = "UnknownError"

    /// - Returns: `nil` if the delivery has not ended.
    init?(_ delivery: DeliveryCount) {
        switch delivery.outcome {
        case nil: return nil
        case .delivered?: self = .success
        case .expired?: self = .abandoned
        case .suppressed?: self = .dropped
        case .inDoubt?: self = .unreachable
        case .failed?: self = Self.failed(delivery)
        }
    }

    private static func failed(_ delivery: DeliveryCount) -> HubOutcome {
        let local = delivery.reason.flatMap(LocalFailure.init(reason:))
        if let local, let outcome = HubOutcome(local, status: delivery.status) { return outcome }
        // Without a status, the content of the message was refused before any request to a push
        // service.
        guard let status = delivery.status else { return .invalidFormat }
        let reason = delivery.reason?.lowercased() ?? ""
        switch (delivery.platform, status, reason) {
        case (_, 413, _), (_, _, "payloadtoolarge"): return .invalidSize
        case (.apns, _, "baddevicetoken"), (.apns, _, "devicetokennotfortopic"),
            (.fcm, _, "sender_id_mismatch"):
            return .wrongToken
        case (.apns, 410, _), (.fcm, _, "unregistered"), (.wns, 410, _), (.mpns, 404, _):
            return .expiredChannel
        case (.wns, 404, _): return .badChannel
        case (.wns, 200, _), (.mpns, 200, _): return .dropped
        case (_, 401, _), (_, 403, _): return .invalidCredentials
        case (_, 429, _), (.wns, 406, _), (.mpns, 406, _): return .throttled
        case (_, 500..., _): return .serverError
        case (_, 400..<500, _): return .invalidFormat
        case _: return .unknown
        }
    }

    /// - Returns: `nil` if a token endpoint failed with a status from which the outcome follows.
    private init?(_ failure: LocalFailure, status: Int?) {
        switch failure {
        case .payloadTooLarge: self = .invalidSize
        case .templateExpired: self = .dropped
        case .malformedToken: self = .wrongToken
        case .hostNotAllowed: self = .badChannel
        case .noCredential, .noCredentialOfTopic, .noDefaultCredential, .unusableAPNsCredential,
            .unusableFCMCredential, .unusableWNSCredential, .unusableMPNSCredential,
            .noMPNSClient, .noConnectionClient, .keyDoesNotSign:
            self = .invalidCredentials
        case .tokenEndpoint:
            guard status.map({ (400..<500).contains($0) && $0 != 408 && $0 != 429 }) ?? true else {
                return nil
            }
            self = .invalidCredentials
        }
    }
}
