package import HTTPServer

extension HTTPProblem {
    /// Renders a refusal as RFC 9457 problem details.
    package init(_ refusal: Refusal) {
        switch refusal {
        case .unauthorized:
            self = .unauthorized("the app's id or its key is missing or wrong")
        case .signatureTooOld:
            self = .unauthorized(
                "the signature is too old, or the clock that it was made by is wrong"
            )
        case .tooManyRequests(let seconds):
            self.init(status: 429, detail: "too many requests; try again in \(seconds) s")
        case .masterKeyNeeded: self.init(status: 403, detail: "this needs the master key")
        case .nothingHere: self.init(status: 404, detail: "there is nothing at this path")
        case .wrongMethod:
            self.init(status: 405, detail: "this path does not take this method")
        case .problem(let problem): self = problem
        case .valueRefused:
            self.init(status: 400, detail: "a value cannot be stored or compared")
        case .tookTooLong, .unavailable:
            self.init(
                status: 503,
                detail: "the service cannot answer now; try again",
                headers: ["Retry-After": "1"]
            )
        case .failed: self.init(status: 500)
        }
    }

    private static func unauthorized(_ detail: String) -> HTTPProblem {
        HTTPProblem(
            status: 401,
            detail: detail,
            headers: ["WWW-Authenticate": "Basic realm=\"carillon\", charset=\"UTF-8\""]
        )
    }
}
