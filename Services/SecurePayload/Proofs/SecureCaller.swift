import Door
import HTTPServer
import PushStorage

/// Who calls, once it is proved.
enum SecureCaller: Sendable {
    /// The app's backend, by its master key.
    case backend(Caller)
    /// Any copy of the app: its key opens nothing here.
    case appKey
    case reader(ProvedReader)

    /// - Throws: 403 for anybody else.
    func needBackend() throws -> Caller {
        guard case .backend(let caller) = self else { throw SecureRefusal.notEnough }
        return caller
    }

    /// - Throws: 403 for anybody else.
    func needReader() throws -> ProvedReader {
        guard case .reader(let reader) = self else { throw SecureRefusal.notEnough }
        return reader
    }
}

/// One of an app's users, or one of his devices.
struct ProvedReader: Sendable {
    let app: VisitedApp
    let identity: String
    /// The device that proved itself; `nil`: somebody proved to be the identity.
    let device: String?
    let visit: Visit

    /// As the store knows him.
    ///
    /// - Parameter named: The device that an identity says it reads on.
    /// - Returns: Him.
    func reader(naming named: String? = nil) -> SecureReader {
        SecureReader(app: app.id, identity: identity, installation: device, named: named)
    }
}

/// Why somebody does not get what he asks for. A closed set, which is counted.
enum SecureRefusal: String, Error, CaseIterable {
    /// Nobody has proved who calls: whatever is missing or wrong.
    case unproved
    /// Right, and not enough here.
    case notEnough = "not_enough"
    /// Made up, another's, expired, deleted or consumed.
    case notFound = "not_found"
    /// Too many wrong secrets, or ids.
    case tooMany = "too_many"
    /// Too many secrets wait to be looked at.
    case busy
    /// The issuer of a token cannot be asked, and its keys are not known.
    case issuerAway = "issuer_away"
    /// What is kept does not open.
    case tampered

    var problem: HTTPProblem {
        switch self {
        case .unproved:
            HTTPProblem(
                status: 401,
                detail: "who calls is not proved",
                headers: ["WWW-Authenticate": "Basic realm=\"carillon\""]
            )
        case .notEnough:
            HTTPProblem(status: 403, detail: "what is proved is not enough for this")
        case .notFound:
            HTTPProblem(status: 404, detail: "there is nothing of this id for who asks")
        case .tooMany: HTTPProblem(status: 429, detail: "too many requests")
        case .busy:
            HTTPProblem(
                status: 503,
                detail: "too many secrets are being checked; try again",
                headers: ["Retry-After": String(SecretChecks.restSeconds)]
            )
        case .issuerAway:
            HTTPProblem(
                status: 503,
                detail: "the token's issuer cannot be asked for its keys; try again",
                headers: ["Retry-After": "5"]
            )
        case .tampered: HTTPProblem(status: 500, detail: "what is kept cannot be opened")
        }
    }

    /// Which it is, of what a handler threw; `nil` for what is no refusal.
    init?(_ error: any Error) {
        switch error {
        case let refusal as SecureRefusal: self = refusal
        case Refusal.unauthorized, Refusal.signatureTooOld: self = .unproved
        case Refusal.tooManyRequests: self = .tooMany
        default: return nil
        }
    }
}
