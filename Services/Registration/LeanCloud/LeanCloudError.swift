import HTTPServer
import JSON
package import PushCore

package typealias LeanCloudError = ObjectError

extension ObjectError {
    /// Returns the error for a feature of LeanCloud that this service does not have.
    static func notPart(_ name: String) -> ObjectError {
        ObjectError(code: 1, "\(name) is not part of this service.")
    }

    /// The body in LeanCloud's own form: `{"code": 111, "error": "…"}` under a 4xx or 5xx. Body and
    /// status must both show the error: the Python client looks only for `error`, the JavaScript
    /// client only at the status.
    var leanCloudBody: JSONValue { ["code": JSONValue(code), "error": .string(description)] }

    var leanCloudResponse: HTTPServerResponse { .json(leanCloudBody, status: status) }
}
