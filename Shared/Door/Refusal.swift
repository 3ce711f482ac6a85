package import HTTPServer
import PushStorage

/// Why a request is refused, in no surface's words: each tells it in the form of its own protocol.
package enum Refusal: Error, Equatable {
    /// An unknown app, and a wrong key alike.
    case unauthorized
    /// Right, but signed longer ago than the app allows, or in times to come.
    case signatureTooOld
    case tooManyRequests(retryAfterSeconds: Int)
    case masterKeyNeeded(for: String)
    case nothingHere
    case wrongMethod
    /// What the server itself refuses, and what a handler refuses in its words.
    case problem(HTTPProblem)
    /// The database cannot keep a value, or compare with it.
    case valueRefused
    /// The database gave it as long as it gives any.
    case tookTooLong
    /// The database cannot answer now.
    case unavailable
    /// For what the service itself failed at: nothing of it is shown.
    case failed

    /// What a caller can be told of an error that any surface may meet; `nil` for what is none of his
    /// business, or a surface's own.
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
