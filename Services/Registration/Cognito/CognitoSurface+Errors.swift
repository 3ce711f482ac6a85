import Cryptography
import Gateway
import HTTPServer
import PushCore
import SyncStorage

extension CognitoSurface {
    func decorated(
        _ response: HTTPServerResponse,
        for request: HTTPServerRequest
    ) -> HTTPServerResponse {
        var response = response
        response.headers["x-amzn-RequestId"] = PushIdentity.uuidText(randomBytes(16))
        return response
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        decorated(CognitoError(refusal).response, for: request)
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        let known: CognitoError? =
            switch error {
            case let error as CognitoError: error
            case let error as SyncRefusal: CognitoError(error)
            case let error as InstallationError: .invalid(error.description)
            default: nil
            }
        return known.map { decorated($0.response, for: request) }
    }
}

extension CognitoError {
    init(_ refusal: Refusal) {
        switch refusal {
        case .unauthorized, .signatureTooOld, .masterKeyNeeded:
            self.init(
                .notAuthorized,
                "The credentials are missing, wrong, or not valid now for this resource"
            )
        case .tooManyRequests(let seconds):
            self.init(.tooManyRequests, "Too many requests; try again in \(seconds) s")
        case .nothingHere, .wrongMethod:
            self.init(.unknownOperation, "There is no operation of this path and method")
        case .problem(let problem) where problem.status < 500:
            self.init(
                .invalidParameter,
                problem.detail.isEmpty ? statusText(problem.status) : problem.detail
            )
        case .valueRefused: self.init(.invalidParameter, "A value cannot be stored")
        case .problem, .tookTooLong, .unavailable:
            self.init(.internalError, "The service cannot answer now; try again")
        case .failed: self.init(.internalError, "Internal error")
        }
    }

    init(_ refusal: SyncRefusal) {
        switch refusal {
        case .unknownPool:
            self.init(.notAuthorized, "The identity pool is not linked to the caller's app")
        case .unknownDataset: self.init(.resourceNotFound, "There is no such dataset")
        case .unknownDevice: self.init(.resourceNotFound, "The identity has no such device")
        case .notSubscribed: self.init(.resourceNotFound, "The device is not subscribed")
        case .pushSyncOff:
            self.init(.invalidConfiguration, "The identity pool is not configured for push sync")
        case .conflict(let key, let current, let sent):
            self.init(
                .resourceConflict,
                "Current SyncCount for: \(key) is: \(current) not: \(sent)"
            )
        case .limit(let what): self.init(.limitExceeded, what)
        case .bulkInProgress: self.init(.duplicateRequest, "A bulk publish is in progress")
        case .bulkDoneLately:
            self.init(.alreadyStreamed, "A bulk publish succeeded within the last 24 hours")
        }
    }
}
