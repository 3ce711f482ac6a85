import AzureHub
import Gateway
import HTTPServer
import InstallationStorage
import Outbox
import PushCore
import PushStorage

extension AzureSurface {
    func decorated(
        _ response: HTTPServerResponse,
        for request: HTTPServerRequest
    ) -> HTTPServerResponse {
        AzureTracking(request).sign(response)
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        var headers: HTTPHeaders = [:]
        // Such as `Retry-After`, without which SDKs do not retry.
        if case .problem(let problem) = refusal { headers = problem.headers }
        return AzureTracking(request).response(to: AzureError(refusal), headers: headers)
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        let known: AzureError? =
            switch error {
            case let error as AzureError: error
            case let error as InstallationError: AzureError(error.description)
            case let error as ObjectError: AzureError(status: error.status, error.description)
            case let error as PushRequestError: AzureError(error.description)
            case let error as PushTooLarge: AzureError(status: 413, error.description)
            case let error as TagExpressionError: AzureError(error.description)
            case let error as PageTooLarge: AzureError(error.description)
            case is TooManyScheduled:
                AzureError(status: 403, "too many notifications of this hub wait for their time")
            default: nil
            }
        return known.map { AzureTracking(request).response(to: $0) }
    }
}

extension AzureError {
    init(_ refusal: Refusal) {
        switch refusal {
        case .unauthorized, .signatureTooOld: self = .badToken
        case .tooManyRequests(let seconds):
            self.init(status: 429, "too many requests; try again in \(seconds) s")
        case .masterKeyNeeded: self = .claimNeeded(.manage)
        case .nothingHere: self.init(status: 404, "There is nothing at this path.")
        case .wrongMethod: self.init(status: 405, "This path does not take this method.")
        case .problem(let problem):
            self.init(
                status: problem.status,
                problem.detail.isEmpty ? statusText(problem.status) : problem.detail
            )
        case .valueRefused: self.init("a value cannot be stored or compared")
        case .tookTooLong, .unavailable:
            self.init(status: 503, "The service cannot answer now; try again.")
        case .failed: self.init(status: 500, "Internal error.")
        }
    }
}
