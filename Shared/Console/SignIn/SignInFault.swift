/// Why a sign-in at an issuer failed.
enum SignInFault: Error, Equatable, Sendable {
    /// It was not begun in this browser, or too long ago, or its login has changed meanwhile.
    case unknownState
    /// The issuer returned an error instead of a code.
    case refusedByIssuer(String)
    /// The issuer does not accept the code: it was used already, for example.
    case refusedCode
    /// The token is invalid for this login. The reason is logged, not shown.
    case refusedToken
    /// The token gives no role; the claim that would.
    case noRole(claim: String)
    /// The issuer does not answer, or not as OIDC demands.
    case unavailable

    var status: Int {
        switch self {
        case .unknownState: 400
        case .refusedByIssuer, .refusedCode, .refusedToken: 401
        case .noRole: 403
        case .unavailable: 503
        }
    }

    /// Whether it counts as a failure of the address.
    var countsAsFailure: Bool { self != .unavailable }

    /// Whether the sign-in cannot be continued. Otherwise its cookie stays: a request of another
    /// site must not end it.
    var endsFlow: Bool { self != .unknownState }

    func text(_ t: Words) -> String {
        switch self {
        case .unknownState:
            t(
                "This sign-in was not begun in this browser, or more than 10 minutes ago. Begin again."
            )
        case .refusedByIssuer(let error):
            t("The issuer refused the sign-in: {error}.", ["error": error])
        case .refusedCode:
            t(
                "The issuer does not accept the code of this sign-in. A code is valid once. Begin again."
            )
        case .refusedToken:
            t("The issuer's token is not valid for this console. The service's log has the reason.")
        case .noRole(let claim):
            t(
                "Your account has no role here: the claim {claim} is missing or has no known value.",
                ["claim": claim]
            )
        case .unavailable:
            t("The issuer does not answer as expected. Try again in a few seconds.")
        }
    }
}
