import Cryptography
import HTTPServer
import PushCore

/// An error as Azure's clients read it: `Error` with `Code` before `Detail`, no prefix, no attribute,
/// under every status but 2xx.
struct AzureError: Error, Equatable, CustomStringConvertible {
    let status: Int
    /// Shown to the client.
    let description: String

    init(status: Int = 400, _ description: String) {
        self.status = status
        self.description = description
    }

    /// One text for everything that is wrong with a token: who guesses learns nothing.
    static let badToken = AzureError(
        status: 401,
        "InvalidSignature: The token has an invalid signature."
    )

    static func claimNeeded(_ right: AzureRight) -> AzureError {
        switch right {
        case .listen: .badToken
        case .send: AzureError(status: 403, "Send claim is required for this operation.")
        case .manage: AzureError(status: 401, "Manage claim is required for this operation.")
        }
    }

    static func notSupported(_ what: String) -> AzureError {
        AzureError(status: 501, "\(what) is not supported by this service.")
    }

    static let installationNotFound = AzureError(status: 404, "Installation not found")
    static let notificationNotFound = AzureError(status: 404, "Notification not found")
}

/// What a call is known by, to its caller and in both answer headers.
struct AzureTracking: Sendable {
    private let id: String

    init(_ request: HTTPServerRequest) {
        let stated = request.header("trackingid") ?? ""
        let isUsable =
            (1...128).contains(stated.utf8.count)
            && stated.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
        id = isUsable ? stated : PushIdentity.uuidText(randomBytes(16))
    }

    func sign(_ response: HTTPServerResponse) -> HTTPServerResponse {
        var response = response
        response.headers["TrackingId"] = id
        response.headers["x-ms-correlation-request-id"] = id
        return response
    }

    func response(to error: AzureError, headers: HTTPHeaders = [:]) -> HTTPServerResponse {
        let time = Self.time(Instant.now())
        let sentence = error.description.hasSuffix(".") ? "" : "."
        let detail = "\(error.description)\(sentence)TrackingId:\(id)_G0,TimeStamp:\(time)"
        var response = AzureXML.response(
            "<Error><Code>\(error.status)</Code><Detail>\(AzureXML.escaped(detail))</Detail></Error>",
            status: error.status
        )
        for field in headers { response.headers.add(field.name, field.value) }
        return sign(response)
    }

    /// `11/7/2018 12:18:37 AM`, as the original writes it.
    private static func time(_ now: Instant) -> String {
        let text = Array(now.iso8601.utf8)
        func number(_ range: Range<Int>) -> Int {
            text[range].reduce(0) { $0 * 10 + Int($1) - 48 }
        }
        guard text.count >= 19 else { return "" }
        func two(_ value: Int) -> String { value < 10 ? "0\(value)" : "\(value)" }
        let hour = number(11..<13)
        let clock = "\((hour + 11) % 12 + 1):\(two(number(14..<16))):\(two(number(17..<19)))"
        return "\(number(5..<7))/\(number(8..<10))/\(number(0..<4)) \(clock) "
            + (hour < 12 ? "AM" : "PM")
    }
}

/// XML as it is answered.
enum AzureXML {
    static func response(_ body: String, status: Int) -> HTTPServerResponse {
        HTTPServerResponse(
            status: status,
            headers: ["Content-Type": "application/xml; charset=utf-8"],
            body: Array(body.utf8)
        )
    }

    static func element(_ name: String, _ text: String) -> String {
        "<\(name)>\(escaped(text))</\(name)>"
    }

    /// What XML 1.0 cannot hold at all is replaced.
    static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "\t", "\n", "\r": result += "&#\(scalar.value);"
            case _ where scalar.value < 0x20 || scalar.value == 0xFFFE || scalar.value == 0xFFFF:
                result += "\u{FFFD}"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
