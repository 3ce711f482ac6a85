import HTTPServer
import JSON

/// An error in LeanCloud's own form: `{"code": 111, "error": "…"}` under a 4xx or 5xx. Both must
/// agree that it is one: the Python client looks only for `error`, the JavaScript one only at the
/// status. The code is never 0.
package struct LeanCloudError: Error, Equatable, CustomStringConvertible {
    package let status: Int
    package let code: Int
    package let description: String

    package init(status: Int = 400, code: Int, _ description: String) {
        self.status = status
        self.code = code
        self.description = description
    }

    package static let unauthorized = LeanCloudError(
        status: 401,
        code: 401,
        "Unauthorized: the application id or its key is missing or wrong."
    )

    static func masterKeyNeeded(for what: String) -> LeanCloudError {
        LeanCloudError(status: 403, code: 119, "\(what) needs the master key.")
    }

    static func objectNotFound(_ className: String) -> LeanCloudError {
        LeanCloudError(status: 404, code: 101, "Object not found in \(className).")
    }

    /// What another surface of this service, or a later version, may take.
    static func notSupported(_ what: String) -> LeanCloudError {
        LeanCloudError(code: 1, "\(what) is not supported by this version.")
    }

    static func malformedJSON(_ detail: String) -> LeanCloudError {
        LeanCloudError(code: 107, "Malformed JSON: \(detail)")
    }

    /// For what the service itself failed at: nothing of it is shown.
    static let unavailable = LeanCloudError(
        status: 503,
        code: 1,
        "The service cannot answer now; try again."
    )

    var response: HTTPServerResponse {
        .json(["code": JSONValue(code), "error": .string(description)], status: status)
    }
}
