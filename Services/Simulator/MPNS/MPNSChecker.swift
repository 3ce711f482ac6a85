import HTTPServer
import XML

/// Judges a request to an MPNS channel: method, headers, sizes, and that XML is XML.
enum MPNSChecker {
    static func judge(_ request: HTTPServerRequest) -> Judgement {
        Judgement.of { judgement throws(Refusal) in
            judgement.token = request.rawTarget
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
            guard let target else { return }
            guard let root = try? XMLElement.parse(request.body, maximumBytes: 3072),
                root.name == "Notification", root.namespace == "WPNotification",
                root.child(target == "token" ? "Tile" : "Toast") != nil
            else { throw Refusal(400, nil, "the payload is not the target's XML") }
        }
    }

    static func answer(status: Int, to request: HTTPServerRequest) -> HTTPServerResponse {
        var response = HTTPServerResponse(status: status)
        if let id = request.headers["x-messageid"] { response.headers.add("X-MessageID", id) }
        let states: (String, String, String)
        switch status {
        case 200: states = ("Received", "Connected", "Active")
        case 404: states = ("Dropped", "Temp Disconnected", "Expired")
        case 406: states = ("Dropped", "Connected", "Active")
        case 412: states = ("Dropped", "Inactive", "N/A")
        case 500...: return response
        default: states = ("N/A", "N/A", "N/A")
        }
        response.headers.add("X-NotificationStatus", states.0)
        response.headers.add("x-deviceconnectionstatus", states.1)
        response.headers.add("X-SUBSCRIPTIONSTATUS", states.2)
        return response
    }
}
