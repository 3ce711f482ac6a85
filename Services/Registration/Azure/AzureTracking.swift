import AzureHub
import Cryptography
import HTTPServer
import PushCore

/// The id of a call for its client, in both response headers.
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

    /// Returns `11/7/2018 12:18:37 AM`, the format of the original.
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
