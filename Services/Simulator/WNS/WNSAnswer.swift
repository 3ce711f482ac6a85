import Cryptography
import HTTPServer

/// The answers of WNS to checked requests and scripted rules, in headers of inconsistent case.
enum WNSAnswer {
    static func make(
        status: Int,
        description: String?,
        to request: HTTPServerRequest
    ) -> HTTPServerResponse {
        var response = HTTPServerResponse(
            status: status,
            headers: [
                "X-WNS-MSG-ID": Hex.encode(randomBytes(8)),
                "X-WNS-Debug-Trace": "SIMULATOR" + Hex.encode(randomBytes(4)),
            ]
        )
        if let vector = request.headers["ms-cv"] { response.headers.add("Ms-Cv", vector) }
        if status == 200 {
            response.headers.add("X-WNS-STATUS", "received")
            response.headers.add("x-wns-notificationstatus", "received")
        }
        if let description {
            response.headers.add("X-WNS-ERROR-DESCRIPTION", description)
        }
        if request.headers["x-wns-requestforstatus"] == "true" {
            response.headers.add("X-WNS-DeviceConnectionStatus", "connected")
        }
        return response
    }
}
