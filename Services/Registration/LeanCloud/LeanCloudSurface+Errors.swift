import Gateway
import HTTPServer
import JSON
import PushCore

extension LeanCloudSurface {
    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        guard case .nothingHere = refusal else { return ObjectError(refusal).leanCloudResponse }
        return Self.nothing(at: request.path).leanCloudResponse
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        ObjectError(error)?.leanCloudResponse
    }

    // MARK: Missing features

    /// The parts of LeanCloud's API that this service does not have: refused by name, so that an app does not
    /// take them for a failure of its own.
    private static let refused: ExactStringSet = [
        "functions", "call", "login", "logout", "usersByMobilePhone", "usersByMobilePhoneVerify",
        "usersByEmail", "requestSmsCode", "verifySmsCode", "requestMobilePhoneVerify",
        "verifyMobilePhone", "requestLoginSmsCode", "requestPasswordReset",
        "requestPasswordResetBySmsCode", "resetPasswordBySmsCode", "requestEmailVerify",
        "requestCaptcha", "verifyCaptcha", "requestChangePhoneNumber", "changePhoneNumber",
        "files", "fileTokens", "fileCallback", "qiniu", "roles", "statuses", "subscribe",
        "friendship", "friendshipRequests", "leaderboard", "search", "bigquery", "schemas",
        "sessions", "rtm", "stats", "statistics", "feedback", "apps", "aggregate", "config",
        "usersStrictly", "refreshSessionToken", "LiveQuery", "exportData",
    ]

    /// Returns the error of an unknown path.
    static func nothing(at path: String) -> LeanCloudError {
        let segments = path.split(separator: "/").dropFirst()
        if let first = segments.first.map(String.init), refused.contains(first) {
            return .notPart(first)
        }
        if segments.first == "users", segments.count > 2, let last = segments.last {
            return .notPart("users/…/\(last.prefix(50))")
        }
        return LeanCloudError(status: 404, code: 1, "There is nothing at this path.")
    }
}
