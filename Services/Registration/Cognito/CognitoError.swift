import HTTPServer
import JSON

/// An error of Cognito Sync. Clients map its name to a class. Some read the name from the header,
/// some from the body, so both contain it.
struct CognitoError: Error, Equatable {
    enum Name: String, Sendable {
        case invalidParameter = "InvalidParameterException"
        case notAuthorized = "NotAuthorizedException"
        case resourceNotFound = "ResourceNotFoundException"
        case resourceConflict = "ResourceConflictException"
        case limitExceeded = "LimitExceededException"
        case tooManyRequests = "TooManyRequestsException"
        case internalError = "InternalErrorException"
        case invalidConfiguration = "InvalidConfigurationException"
        case duplicateRequest = "DuplicateRequestException"
        case alreadyStreamed = "AlreadyStreamedException"
        /// The error of unknown paths; no client has a class for it.
        case unknownOperation = "UnknownOperationException"

        var status: Int {
            switch self {
            case .invalidParameter, .limitExceeded, .invalidConfiguration, .duplicateRequest,
                .alreadyStreamed:
                400
            case .notAuthorized: 403
            case .resourceNotFound, .unknownOperation: 404
            case .resourceConflict: 409
            case .tooManyRequests: 429
            case .internalError: 500
            }
        }
    }

    let name: Name
    /// Shown to the client.
    let message: String

    init(_ name: Name, _ message: String) {
        self.name = name
        self.message = message
    }

    static func invalid(_ message: String) -> CognitoError {
        CognitoError(.invalidParameter, message)
    }

    var response: HTTPServerResponse {
        var response = HTTPServerResponse.json(
            .object(["__type": .string(name.rawValue), "message": .string(message)]),
            status: name.status
        )
        response.headers["x-amzn-ErrorType"] = name.rawValue
        return response
    }
}
