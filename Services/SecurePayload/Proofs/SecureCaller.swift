import Gateway
import HTTPServer
import SecureStorage

/// An authenticated caller.
enum SecureCaller: Sendable {
    /// The app's backend, by its master key.
    case backend(Caller)
    /// A client with the app key, which gives no access here.
    case appKey
    case reader(AuthenticatedReader)

    /// - Throws: 403 for any other caller.
    func requireBackend() throws -> Caller {
        guard case .backend(let caller) = self else { throw SecureRefusal.notEnough }
        return caller
    }

    /// - Throws: 403 for any other caller.
    func requireReader() throws -> AuthenticatedReader {
        guard case .reader(let reader) = self else { throw SecureRefusal.notEnough }
        return reader
    }
}

/// A user of an app, or one of the user's devices.
struct AuthenticatedReader: Sendable {
    let app: UnverifiedApp
    let identity: String
    /// The device that authenticated; `nil` if the identity did.
    let device: String?
    let context: RequestContext

    /// Returns the reader in the store's form.
    ///
    /// - Parameter named: The device on which an identity says that it reads.
    /// - Returns: The reader.
    func reader(naming named: String? = nil) -> SecureReader {
        SecureReader(app: app.id, identity: identity, installation: device, named: named)
    }
}

/// The reason for which a caller is refused. A closed set, which is counted.
enum SecureRefusal: String, Error, CaseIterable {
    /// The caller is not authenticated, whatever is missing or wrong.
    case unproved
    /// Authenticated, but not authorized for this.
    case notEnough = "not_enough"
    /// Unknown, another reader's, expired, deleted or consumed.
    case notFound = "not_found"
    /// Too many wrong secrets or ids.
    case tooMany = "too_many"
    /// Too many secrets wait to be verified.
    case busy
    /// The issuer of a token is not reachable, and its keys are not cached.
    case issuerAway = "issuer_away"
    /// The stored content cannot be opened.
    case tampered

    var problem: HTTPProblem {
        switch self {
        case .unproved:
            HTTPProblem(
                status: 401,
                detail: "authentication is required",
                headers: ["WWW-Authenticate": "Basic realm=\"carillon\""]
            )
        case .notEnough:
            HTTPProblem(status: 403, detail: "the credentials do not allow this")
        case .notFound:
            HTTPProblem(status: 404, detail: "not found")
        case .tooMany: HTTPProblem(status: 429, detail: "too many requests")
        case .busy:
            HTTPProblem(
                status: 503,
                detail: "too many secrets are being checked; try again",
                headers: ["Retry-After": String(SecretVerifier.restSeconds)]
            )
        case .issuerAway:
            HTTPProblem(
                status: 503,
                detail: "the token's issuer cannot be asked for its keys; try again",
                headers: ["Retry-After": "5"]
            )
        case .tampered: HTTPProblem(status: 500, detail: "the stored content cannot be decrypted")
        }
    }

    /// Maps the error of a handler; `nil` if it is not a refusal.
    init?(_ error: any Error) {
        switch error {
        case let refusal as SecureRefusal: self = refusal
        case Refusal.unauthorized, Refusal.signatureTooOld: self = .unproved
        case Refusal.tooManyRequests: self = .tooMany
        default: return nil
        }
    }
}
