import HTTPServer
import PushCore
import XML

/// Checks requests to MPNS channels: method, headers, sizes, the target's XML, the daily quota of senders
/// without a certificate, and the pause that a channel demanded.
///
/// A channel whose URI has `owner=<common name>` accepts only the sender with that certificate, and one with
/// `state=` is in that state: `queuefull`, `suppressed`, `expired`, `throttled`, `inactive` or `unavailable`.
struct MPNSChecker: Sendable {
    private struct Channel {
        var dayBegan = Instant.earliest
        var sentToday = 0
        /// The time of the last answer with 406 or 412.
        var refusedAt = Instant.earliest
        var refusal = 0
    }

    static let dailyLimit = 500
    private static let maximumChannels = 20_000
    private static let day: Int64 = 86_400_000
    private static let hour: Int64 = 3_600_000

    private var channels: [String: Channel] = [:]

    mutating func check(
        _ request: HTTPServerRequest,
        isAuthenticated: Bool = false,
        now: Instant = .now()
    ) -> CheckResult {
        var result = CheckResult.of { result throws(Refusal) in
            result.token = request.rawTarget
            try Self.check(request)
            try Self.checkOwner(request)
        }
        guard result.status == 200 else { return result }
        var channel = channels[request.rawTarget] ?? Channel()
        if channel.refusedAt.adding(milliseconds: Self.hour) > now {
            result.refuse(channel.refusal, "Dropped", "sent to again within the hour")
        } else if let state = request.queryValue("state") {
            check(state, &result)
        }
        if result.status == 200, !isAuthenticated {
            if channel.dayBegan.adding(milliseconds: Self.day) <= now {
                channel.dayBegan = now
                channel.sentToday = 0
            }
            channel.sentToday += 1
            if channel.sentToday > Self.dailyLimit {
                result.refuse(406, "Dropped", "more than \(Self.dailyLimit) today")
            }
        }
        if channels.count >= Self.maximumChannels { channels = [:] }
        channels[request.rawTarget] = channel
        return result
    }

    /// Records the final answer to the channel, by the checks or by a rule.
    mutating func answered(_ status: Int, to channel: String, now: Instant) {
        guard status == 406 || status == 412 else { return }
        channels[channel, default: Channel()].refusedAt = now
        channels[channel]?.refusal = status
    }

    private func check(_ state: String, _ result: inout CheckResult) {
        switch state {
        case "queuefull": result.reason = "QueueFull"
        case "suppressed": result.reason = "Suppressed"
        case "expired": result.refuse(404, "Dropped")
        case "throttled": result.refuse(406, "Dropped")
        case "inactive": result.refuse(412, "Dropped")
        case "unavailable": result.refuse(503, nil)
        case _: result.refuse(400, nil, "the channel's URI names no state")
        }
    }

    private static func checkOwner(_ request: HTTPServerRequest) throws(Refusal) {
        guard let owner = request.queryValue("owner") else { return }
        let names = request.clientCertificateSubject?.split(separator: ",") ?? []
        guard names.contains(where: { $0 == "CN=\(owner)" }) else {
            throw Refusal(401, nil, "the channel belongs to another certificate")
        }
    }

    private static func check(_ request: HTTPServerRequest) throws(Refusal) {
        guard request.protocolVersion != .http2 else {
            throw Refusal(400, nil, "MPNS speaks HTTP/1.1")
        }
        guard request.method == .post else { throw Refusal(405, nil) }
        guard request.headers.contains("content-length"), request.body.count <= 3072 else {
            throw Refusal(400, nil, "no Content-Length, or a body over 3 KB")
        }
        let headBytes = request.headers.reduce(0) {
            $0 + $1.name.utf8.count + $1.value.utf8.count + 4
        }
        guard headBytes <= 1024 else { throw Refusal(400, nil, "headers over 1 KB") }
        let target = request.headers["x-windowsphone-target"]
        let classes: [String]
        switch target {
        case "token"?: classes = ["1", "11", "21"]
        case "toast"?: classes = ["2", "12", "22"]
        case nil: classes = ["3", "13", "23"]
        case _?: throw Refusal(400, nil, "X-WindowsPhone-Target is neither toast nor token")
        }
        guard let kind = request.headers["x-notificationclass"], classes.contains(kind) else {
            throw Refusal(400, nil, "X-NotificationClass does not match the target")
        }
        if let target { try checkPayload(request, isTile: target == "token") }
    }

    private static let toastElements: Set<String> = ["Text1", "Text2", "Param", "Sound"]
    private static let tileElements: Set<String> = [
        "BackgroundImage", "Count", "Title", "BackBackgroundImage", "BackTitle", "BackContent",
        "SmallBackgroundImage", "WideBackgroundImage", "WideBackBackgroundImage",
        "WideBackContent", "SmallIconImage", "IconImage", "WideContent1", "WideContent2",
        "WideContent3", "BackgroundColor", "CycleImage1", "CycleImage2", "CycleImage3",
        "CycleImage4", "CycleImage5", "CycleImage6", "CycleImage7", "CycleImage8", "CycleImage9",
    ]

    private static func checkPayload(
        _ request: HTTPServerRequest,
        isTile: Bool
    ) throws(Refusal) {
        let type = request.headers["content-type"]?.lowercased().split(separator: ";").first
        guard type == "text/xml" else {
            throw Refusal(400, nil, "Content-Type of a toast or a tile is text/xml")
        }
        guard let root = try? XMLElement.parse(request.body, maximumBytes: 3072),
            root.name == "Notification", root.namespace == "WPNotification",
            let content = root.child(isTile ? "Tile" : "Toast"),
            content.namespace == "WPNotification"
        else { throw Refusal(400, nil, "the payload is not the target's XML") }
        let known = isTile ? tileElements : toastElements
        guard content.children.allSatisfy({ known.contains($0.name) }) else {
            throw Refusal(400, nil, "the payload holds an element that its template does not have")
        }
    }

    // MARK: Answers

    /// Creates an answer with the headers of the table, in the varying spellings that sources report.
    static func answer(
        status: Int,
        reason: String? = nil,
        to request: HTTPServerRequest
    ) -> HTTPServerResponse {
        var response = HTTPServerResponse(status: status)
        if let id = request.headers["x-messageid"] { response.headers.add("X-MessageID", id) }
        let states: (String, String, String)
        switch (status, reason) {
        case (200, "QueueFull"), (200, "Suppressed"):
            states = (reason ?? "", "Temp Disconnected", "Active")
        case (200, _): states = ("Received", "Connected", "Active")
        case (404, _): states = ("Dropped", "TempDisconnected", "Expired")
        case (406, _): states = ("Dropped", "Connected", "Active")
        case (412, _): states = ("Dropped", "Inactive", "N/A")
        case (500..., _): return response
        case _: states = ("N/A", "N/A", "N/A")
        }
        response.headers.add("X-NotificationStatus", states.0)
        response.headers.add("x-deviceconnectionstatus", states.1)
        response.headers.add("X-SUBSCRIPTIONSTATUS", states.2)
        return response
    }
}
