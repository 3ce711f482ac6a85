import Gateway
import HTTPServer
import JSON

/// An error in the format of Google's clients: `error` with `code`, `message` and `status`.
struct FirebaseError: Error, Equatable, CustomStringConvertible {
    /// Google's name of a kind of error.
    enum Status: String {
        case invalidArgument = "INVALID_ARGUMENT"
        case failedPrecondition = "FAILED_PRECONDITION"
        case unauthenticated = "UNAUTHENTICATED"
        case permissionDenied = "PERMISSION_DENIED"
        case notFound = "NOT_FOUND"
        case resourceExhausted = "RESOURCE_EXHAUSTED"
        case unimplemented = "UNIMPLEMENTED"
        case deadlineExceeded = "DEADLINE_EXCEEDED"
        case unavailable = "UNAVAILABLE"
        case internalError = "INTERNAL"
    }

    let code: Int
    let status: Status
    /// Shown to the client.
    let message: String
    var retryAfterSeconds: Int?
    /// The errors in the request's form, as in `google.rpc.BadRequest`.
    var fieldViolations: [String] = []

    init(_ code: Int, _ status: Status, _ message: String, retryAfterSeconds: Int? = nil) {
        self.code = code
        self.status = status
        self.message = message
        self.retryAfterSeconds = retryAfterSeconds
    }

    var description: String { message }

    var response: HTTPServerResponse {
        var error: JSONObject = [
            "code": JSONValue(code), "message": .string(message),
            "status": .string(status.rawValue),
        ]
        if !fieldViolations.isEmpty {
            error["details"] = [
                [
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": .array(
                        fieldViolations.map { ["description": .string($0)] }
                    ),
                ]
            ]
        }
        var response = HTTPServerResponse.json(["error": .object(error)], status: code)
        response.headers["Content-Type"] = "application/json; charset=UTF-8"
        if let retryAfterSeconds { response.headers["Retry-After"] = String(retryAfterSeconds) }
        return response
    }

    static func invalid(_ message: String) -> FirebaseError {
        FirebaseError(400, .invalidArgument, message)
    }

    /// The error in Google's words.
    static func unknownParameter(_ name: String) -> FirebaseError {
        let name = name.shown
        let message =
            "Invalid JSON payload received. Unknown name \"\(name)\": Cannot bind query parameter. "
            + "Field '\(name)' could not be found in request message."
        var error = FirebaseError.invalid(message)
        error.fieldViolations = [message]
        return error
    }

    /// The error in Google's words.
    static func unknownField(_ name: String) -> FirebaseError {
        let message =
            "Invalid JSON payload received. Unknown name \"\(name.shown)\": Cannot find field."
        var error = FirebaseError.invalid(message)
        error.fieldViolations = [message]
        return error
    }

    /// One message for an unknown project and for any invalid key: an attacker who guesses learns nothing.
    static let permissionDenied = FirebaseError(
        403,
        .permissionDenied,
        "The caller does not have permission, or the project does not exist."
    )

    static let unauthenticated = FirebaseError(
        401,
        .unauthenticated,
        "Request is missing a valid access token: a config token of the project."
    )

    static let readOnly = FirebaseError(403, .permissionDenied, "The config token is read-only.")

    static let versionNotFound = FirebaseError(
        404,
        .notFound,
        "There is no such version, or it is no longer stored."
    )

    /// Clients look for the bracketed word and for the code.
    static func versionMismatch(expected: String, found: Int, project: String) -> FirebaseError {
        FirebaseError(
            400,
            .failedPrecondition,
            "[VERSION_MISMATCH]: Expected version \(expected), found \(found) for project: \(project)"
        )
    }

    static func invalidTemplate(_ reason: String) -> FirebaseError {
        .invalid("[VALIDATION_ERROR]: \(reason)")
    }

    static func throttled(retryAfterSeconds: Int) -> FirebaseError {
        FirebaseError(
            429,
            .resourceExhausted,
            "Too many requests; try again in \(retryAfterSeconds) s.",
            retryAfterSeconds: retryAfterSeconds
        )
    }

    static let unavailable = FirebaseError(
        503,
        .unavailable,
        "The service cannot answer now; try again.",
        retryAfterSeconds: 1
    )
}

extension String {
    /// The part of an untrusted string that an error may repeat.
    var shown: String {
        var result = ""
        for scalar in unicodeScalars.prefix(100) {
            result.unicodeScalars.append(scalar.value < 0x20 || scalar.value == 0x7F ? " " : scalar)
        }
        return result
    }
}

extension FirebaseError {
    init(_ refusal: Refusal) {
        switch refusal {
        case .unauthorized, .signatureTooOld, .masterKeyNeeded: self = .permissionDenied
        case .tooManyRequests(let seconds): self = .throttled(retryAfterSeconds: seconds)
        case .nothingHere: self.init(404, .notFound, "There is nothing at this path.")
        case .wrongMethod: self.init(405, .unimplemented, "This path does not take this method.")
        case .problem(let problem): self.init(problem)
        case .valueRefused: self = .invalid("A value cannot be stored.")
        case .tookTooLong, .unavailable: self = .unavailable
        case .failed: self.init(500, .internalError, "Internal error.")
        }
    }

    private init(_ problem: HTTPProblem) {
        let status: Status =
            switch problem.status {
            case 401: .unauthenticated
            case 403: .permissionDenied
            case 404: .notFound
            case 405: .unimplemented
            case 408: .deadlineExceeded
            case 429: .resourceExhausted
            case 503: .unavailable
            case 501: .unimplemented
            case 500...: .internalError
            default: .invalidArgument
            }
        self.init(
            problem.status,
            status,
            problem.detail.isEmpty ? statusText(problem.status) : problem.detail
        )
    }
}
