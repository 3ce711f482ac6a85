package import HTTPServer
import Storage

/// Why a request is refused. Each surface renders it in its own protocol.
package enum Refusal: Error, Equatable {
    /// An unknown app, or a wrong key.
    case unauthorized
    /// Valid, but signed longer ago than the app allows, or in the future.
    case signatureTooOld
    case tooManyRequests(retryAfterSeconds: Int)
    case masterKeyNeeded(for: String)
    case nothingHere
    case wrongMethod
    /// A refusal of the server itself, or of a handler with its own status.
    case problem(HTTPProblem)
    /// The database cannot store a value, or compare with it.
    case valueRefused
    /// The database's time limit of a statement has passed.
    case tookTooLong
    /// The database is unavailable.
    case unavailable
    /// A failure of the service itself: no detail is shown.
    case failed

    /// Makes the refusal of an error that any surface may meet; `nil` if the error is internal, or
    /// a surface's own.
    package init?(_ error: any Error) {
        switch error {
        case let refusal as Refusal: self = refusal
        case let problem as HTTPProblem: self = .problem(problem)
        case let error as StorageError where error.isStatementTimeout: self = .tookTooLong
        case let error as StorageError where error.isRetryable: self = .unavailable
        case let error as StorageError where error.isOfTheValues: self = .valueRefused
        default: return nil
        }
    }
}
