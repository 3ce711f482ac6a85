package import Gateway
package import HTTPServer
import PushCore

/// Pages of errors. Each says what is wrong and what to do next.
extension ConsoleSurface {
    package func answer(
        to refusal: Refusal,
        _ request: HTTPServerRequest
    ) -> HTTPServerResponse {
        let t = words(for: request)
        switch refusal {
        // The key of the session was rotated, or the app is gone.
        case .unauthorized, .signatureTooOld: return toSignIn(request)
        case .tooManyRequests(let seconds):
            return error(
                request,
                429,
                t("Too many requests"),
                t.count(
                    seconds,
                    one: "Try again in {count} second.",
                    other: "Try again in {count} seconds."
                )
            )
        case .nothingHere:
            return error(request, 404, t("Not found"), t("There is nothing at this address."))
        case .wrongMethod:
            return error(
                request,
                405,
                t("Not found"),
                t("This address does not take this method.")
            )
        case .tookTooLong, .unavailable:
            return error(
                request,
                503,
                t("Not available"),
                t("The database does not answer in time. Try again in a few seconds.")
            )
        case .masterKeyNeeded, .valueRefused, .failed, .problem:
            let problem = HTTPProblem(refusal)
            return error(
                request,
                problem.status,
                t("The request failed"),
                problem.status < 500 && !problem.detail.isEmpty
                    ? problem.detail : t("The service's log says more.")
            )
        }
    }

    package func answer(
        toOwn error: any Error,
        _ request: HTTPServerRequest
    ) -> HTTPServerResponse? {
        guard let error = error as? ConsoleError else { return nil }
        let t = words(for: request)
        switch error {
        case .signedOut: return toSignIn(request)
        case .otherApp(let app):
            return self.error(
                request,
                404,
                t("Not found"),
                t("You are signed in to {app}. Sign out to change the app.", ["app": app])
            )
        case .missingRole(let role):
            return self.error(
                request,
                403,
                t("Not allowed"),
                t(
                    "This needs the role {role}. An admin of the app can give it.",
                    [
                        "role": role.name(t)
                    ]
                )
            )
        case .foreignForm:
            return self.error(
                request,
                403,
                t("Not sent"),
                t("The form is not of this session. Go back, reload the page, and try again.")
            )
        case .badForm:
            return self.error(request, 400, t("Not sent"), t("The form cannot be read."))
        case .missing(let sentence): return self.error(request, 404, t("Not found"), sentence)
        case .conflict(let sentence):
            return self.error(request, 409, t("Changed meanwhile"), sentence)
        case .away(let sentence): return self.error(request, 503, t("Not available"), sentence)
        case .signInFailed(let fault):
            var response = self.error(request, fault.status, t("Not signed in"), fault.text(t))
            if fault.endsFlow {
                response.headers.add("Set-Cookie", ConsoleCookie.signIn.line("", seconds: 0))
            }
            return response
        }
    }

    private func words(for request: HTTPServerRequest) -> Words {
        Words(Look(request).language(for: request))
    }

    /// Returns to the page after the sign-in, if it is a page and no act.
    private func toSignIn(_ request: HTTPServerRequest) -> HTTPServerResponse {
        let next = request.method == .get ? Address(within: request.rawTarget)?.text : nil
        return Self.redirect(
            to: Address(["sign-in"], query: [("next", next)]),
            cookies: [ConsoleCookie.session.line("", seconds: 0)]
        )
    }

    private func error(
        _ request: HTTPServerRequest,
        _ status: Int,
        _ title: String,
        _ sentence: String
    ) -> HTTPServerResponse {
        let look = Look(request)
        let frame = Frame(t: words(for: request), look: look, files: files)
        let home: HTML = """
            <p>\(sentence)</p>
            <p><a class="btn" href="\(Address([]))">\(frame.t("To the start page"))</a></p>
            """
        return Self.page(frame.plain(title: title, home), status: status)
    }
}
