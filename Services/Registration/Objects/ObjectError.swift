import Gateway
import HTTPServer
import InstallationStorage
import Outbox
package import PushCore
import PushStorage

extension ObjectError {
    package static let unauthorized = ObjectError(
        status: 401,
        code: 401,
        "Unauthorized: the application id or its key is missing or wrong."
    )

    static let signatureTooOld = ObjectError(
        status: 401,
        code: 401,
        "Unauthorized: the signature is too old, or the clock that it was made by is wrong."
    )

    static func masterKeyNeeded(for what: String) -> ObjectError {
        ObjectError(status: 403, code: 119, "\(what) needs the master key.")
    }

    static func objectNotFound(_ className: String) -> ObjectError {
        ObjectError(status: 404, code: 101, "Object not found in \(className).")
    }

    static func classNotFound(_ className: String) -> ObjectError {
        ObjectError(status: 404, code: 101, "There is no class \(className.prefix(100)) here.")
    }

    static let wrongMethod = ObjectError(
        status: 405,
        code: 1,
        "This path does not take this method."
    )

    static let conditionFailed = ObjectError(
        code: 305,
        "Nothing was changed: the object does not match the condition."
    )

    /// The error for a request that another surface of this service, or a later version, may support.
    static func notSupported(_ what: String) -> ObjectError {
        ObjectError(code: 1, "\(what) is not supported by this version.")
    }

    static func malformedJSON(_ detail: String) -> ObjectError {
        ObjectError(code: 107, "Malformed JSON: \(detail)")
    }

    static func tooManyRequests(_ seconds: Int) -> ObjectError {
        ObjectError(status: 429, code: 429, "Too many requests; try again in \(seconds) s.")
    }

    /// The error for a failure of the service itself: its cause is not shown.
    static let unavailable = ObjectError(
        status: 503,
        code: 1,
        "The service cannot answer now; try again."
    )

    static let timedOut = ObjectError(
        code: 124,
        "The request took too long; ask for less, or for what an index can find."
    )

    static let `internal` = ObjectError(status: 500, code: 1, "Internal error.")

    /// Maps an error of a handler to one that a client may see; `nil` if it does not concern the client.
    init?(_ error: any Error) {
        switch error {
        case let error as ObjectError: self = error
        case let error as FieldMismatch:
            self.init(code: FieldMismatch.code, error.description)
        case let error as InstallationError: self.init(code: error.code, error.description)
        case let error as WhereError: self.init(code: error.code, error.description)
        case let error as CQLError: self.init(code: error.code, error.description)
        case let error as PushRequestError:
            self.init(code: error.codeOfClients, error.description)
        case let error as PushTooLarge:
            self.init(status: 413, code: 116, error.description)
        case let error as PageTooLarge: self.init(code: 116, error.description)
        case is TooManyScheduled:
            self.init(code: 154, "Too many scheduled pushes wait already; cancel some first.")
        default:
            guard let refusal = Refusal(error) else { return nil }
            self.init(refusal)
        }
    }

    init(_ refusal: Refusal) {
        switch refusal {
        case .unauthorized: self = .unauthorized
        case .signatureTooOld: self = .signatureTooOld
        case .tooManyRequests(let seconds): self = .tooManyRequests(seconds)
        case .masterKeyNeeded(let what): self = .masterKeyNeeded(for: what)
        case .nothingHere:
            self.init(status: 404, code: 1, "There is nothing at this path.")
        case .wrongMethod: self = .wrongMethod
        case .problem(let problem):
            self.init(
                status: problem.status,
                code: problem.status == 413 ? 116 : 1,
                problem.detail
            )
        case .valueRefused: self.init(code: 1, "A value cannot be stored or compared.")
        case .tookTooLong: self = .timedOut
        case .unavailable: self = .unavailable
        case .failed: self = .internal
        }
    }
}

extension PushRequestError {
    /// The code for clients: 112 for a channel's name, a condition's own code, else 1, as LeanCloud
    /// has no code for push parameters.
    fileprivate var codeOfClients: Int {
        switch problem {
        case .badChannelName: 112
        case .condition(let error): error.code
        case .invalid, .missing, .unsupported, .conflict, .noKnownSelector: 1
        }
    }
}
