import Cryptography
import Gateway
import HTTPServer
import JSON
import Logins
import PushCore
import Storage

/// Signing in at an issuer.
extension ConsoleSurface {
    var issuerRoutes: [SurfaceRoute] {
        [
            SurfaceRoute(
                .get,
                "/console/sign-in/:login",
                handler: .unauthenticated { request, context in
                    try await beginSignIn(request, context)
                }
            ),
            SurfaceRoute(
                .get,
                "/console/sign-in/:login/return",
                handler: .unauthenticated { request, context in
                    try await finishSignIn(request, context)
                }
            ),
        ]
    }

    /// The most links of the sign-in page.
    private static let maximumLinks = 50
    /// The longest code of an issuer.
    private static let maximumCodeBytes = 4096

    /// The links to the issuers. Without the database, there are none.
    func issuerLinks(next: Address?, _ t: Words) async -> HTML {
        let logins = (try? await operators?.logins().filter(\.isListed)) ?? []
        guard !logins.isEmpty else { return .empty }
        let links = logins.prefix(Self.maximumLinks).map { login -> HTML in
            let address = Address(["sign-in", login.name], query: [("next", next?.text)])
            let text = t.html("Sign in with {name}", ["name": Part.own(login.title)])
            return "<a class=\"btn\" href=\"\(address)\">\(text)</a>\n"
        }
        return """
            <section class="card stack" id="issuers" aria-label="\(t("Sign in with an issuer"))">
            \(links)</section>
            """
    }

    private func login(
        of request: HTTPServerRequest
    ) async throws -> (ConsoleOperators, StoredConsoleLogin) {
        guard let operators,
            let login = try await operators.login(named: request.pathParameters["login"] ?? "")
        else { throw Refusal.nothingHere }
        return (operators, login)
    }

    /// `GET /console/sign-in/{login}?next=`: redirects to the issuer.
    private func beginSignIn(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        try context.countArrival()
        // A page of another site must not exchange the session of this browser.
        guard request.isOfThisSite else { return Self.redirect(to: Address("sign-in")) }
        let (operators, login) = try await login(of: request)
        let next = request.queryValue("next").flatMap(Address.init(within:))
        let flow = SignInFlow(at: login, next: next, now: .now())
        let cookie = ConsoleCookie.signIn.line(
            try flow.sealed(by: operators.keys),
            seconds: SignInFlow.lifetimeSeconds
        )
        return Self.redirect(
            toURL: flow.authorizationURL(
                of: login,
                redirectURI: operators.redirectURI(of: login)
            ),
            cookies: [cookie]
        )
    }

    /// `GET /console/sign-in/{login}/return?code=&state=`: the issuer's answer. The session is new,
    /// whatever cookie the request has.
    private func finishSignIn(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        try context.countArrival()
        let (operators, login) = try await login(of: request)
        do {
            let (flow, code) = try answer(request, keys: operators.keys, login)
            // Codes cost the issuer calls, so an address with too many failures has to wait.
            guard !context.isAfterFailures else { throw context.refusal() }
            let person = try await operators.person(by: code, in: flow, at: login)
            let session = try await session(of: person, at: login, context)
            return try begin(
                session,
                next: flow.next,
                cookies: [ConsoleCookie.signIn.line("", seconds: 0)]
            )
        } catch let fault as SignInFault {
            throw failure(fault, context)
        }
    }

    /// Reads the issuer's answer, which must be to a sign-in that this browser began.
    private func answer(
        _ request: HTTPServerRequest,
        keys: KeyRing,
        _ login: StoredConsoleLogin
    ) throws -> (SignInFlow, code: String) {
        guard
            let flow = ConsoleCookie.signIn.value(in: request)
                .flatMap({ SignInFlow($0, keys: keys, now: .now()) }),
            flow.accepts(state: request.queryValue("state"), of: login)
        else { throw SignInFault.unknownState }
        // RFC 9207: an answer that names its issuer is of this one.
        if let issuer = request.queryValue("iss"), !issuer.isSame(as: login.issuer) {
            throw SignInFault.unknownState
        }
        if let error = request.queryValue("error") {
            throw SignInFault.refusedByIssuer(IssuerClient.isWord(error) ? error : "error")
        }
        guard let code = request.queryValue("code"),
            (1...Self.maximumCodeBytes).contains(code.utf8.count)
        else { throw SignInFault.refusedByIssuer("no_code") }
        return (flow, code)
    }

    /// Makes the session. From here on the audit has the attempt, with the person's name.
    private func session(
        of person: Operator,
        at login: StoredConsoleLogin,
        _ context: RequestContext
    ) async throws -> Session {
        let session = Session(
            of: login,
            actor: person.actor,
            role: person.role ?? .viewer,
            now: .now()
        )
        _ = try await context.admit(session.proof)
        context.note("login:\(login.name)")
        guard let role = person.role else { throw SignInFault.noRole(claim: login.roleClaim) }
        context.note("role:\(role.rawValue)")
        return session
    }

    /// Counts the failure, and returns the error to show.
    private func failure(_ fault: SignInFault, _ context: RequestContext) -> any Error {
        guard fault.countsAsFailure else { return ConsoleError.signInFailed(fault) }
        let refusal = context.refusal()
        if case Refusal.tooManyRequests = refusal { return refusal }
        return ConsoleError.signInFailed(fault)
    }
}
