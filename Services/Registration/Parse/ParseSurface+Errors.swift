import Gateway
import HTTPServer
import JSON
import PushCore

extension ParseSurface {
    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        ObjectError(ofParse: refusal).parseResponse
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        ObjectError(ofParse: error)?.parseResponse
    }
}

extension ObjectError {
    /// Maps an error to one that a caller of Parse's may see; `nil` if it does not concern the caller.
    init?(ofParse error: any Error) {
        if let error = error as? PushRequestError {
            switch error.problem {
            case .badChannelName, .condition: break
            case .invalid, .missing, .unsupported, .conflict, .noKnownSelector:
                self.init(code: ParsePush.misconfigured, error.description)
                return
            }
        }
        if let error = error as? FieldMismatch {
            self.init(code: FieldMismatch.code, error.descriptionOfParse)
        } else if let refusal = Refusal(error) {
            self.init(ofParse: refusal)
        } else {
            self.init(error)
        }
    }

    init(ofParse refusal: Refusal) {
        switch refusal {
        case .tooManyRequests(let seconds):
            self.init(
                status: 429,
                code: 155,
                "Too many requests; try again in \(seconds) s."
            )
        case .unauthorized:
            let told = ObjectError.unauthorized
            self.init(status: 403, code: told.code, told.description)
        case .signatureTooOld, .masterKeyNeeded, .nothingHere, .wrongMethod, .problem,
            .valueRefused, .tookTooLong, .unavailable, .failed:
            self.init(refusal)
        }
    }

    /// The body in Parse's form: an unauthenticated caller gets no code.
    var parseBody: JSONValue {
        if code == ObjectError.unauthorized.code { return ["error": "unauthorized"] }
        return ["code": JSONValue(code), "error": .string(description)]
    }

    fileprivate var parseResponse: HTTPServerResponse { .json(parseBody, status: status) }
}
