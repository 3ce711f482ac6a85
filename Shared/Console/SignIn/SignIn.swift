import Cryptography
import Gateway
import HTTPServer
import PushCore

/// Signing in and out.
extension ConsoleSurface {
    var signInRoutes: [SurfaceRoute] {
        [
            SurfaceRoute(
                .get,
                "/console",
                handler: .unauthenticated { request, _ in start(request) }
            ),
            SurfaceRoute(
                .get,
                "/console/sign-in",
                handler: .unauthenticated { request, _ in
                    await signInPage(request, app: "", isRefused: false)
                }
            ),
            SurfaceRoute(
                .post,
                "/console/sign-in",
                maximumBodyBytes: 8192,
                handler: .unauthenticated { request, context in
                    try await signIn(request, context)
                }
            ),
            SurfaceRoute(
                .post,
                "/console/sign-out",
                maximumBodyBytes: 4096,
                handler: .unauthenticated { request, context in
                    try await signOut(request, context)
                }
            ),
        ]
    }

    /// `GET /console`: the app's overview, or the sign-in page.
    private func start(_ request: HTTPServerRequest) -> HTTPServerResponse {
        let session = ConsoleCookie.session.value(in: request)
            .flatMap { sessions.open($0, now: .now()) }
        return Self.redirect(to: session.map { Address($0.app) } ?? Address("sign-in"))
    }

    private func signInPage(
        _ request: HTTPServerRequest,
        app: String,
        isRefused: Bool
    ) async -> HTTPServerResponse {
        let look = Look(request)
        let t = Words(look.language(for: request))
        let next = request.queryValue("next").flatMap(Address.init(within:))
        let problem: HTML? =
            isRefused
            ? """
            <div class="note bad" role="alert" id="problem"><p>\
            \(t("The app or its master key is wrong."))</p></div>
            """ : nil
        let links = await issuerLinks(next: next, t)
        let body: HTML = """
            \(problem)
            <form class="card stack" method="post" action="\(Address(
                ["sign-in"], query: [("next", next?.text)]))">
            <div class="field"><label for="app">\(t("App"))</label>
            <input id="app" name="app" value="\(app)" autocomplete="username" autocapitalize="none" \
            spellcheck="false" required autofocus></div>
            <div class="field"><label for="key">\(t("Master key"))</label>
            <input id="key" name="key" type="password" autocomplete="current-password" required>
            <p class="hint">\(t("As printed by {command}.", ["command": "carillon app create"]))</p>
            </div>
            <button class="btn primary">\(t("Sign in"))</button>
            </form>
            \(links)
            """
        let frame = Frame(t: t, look: look, files: files)
        return Self.page(
            frame.plain(title: t("Sign in"), body),
            status: isRefused ? 401 : 200
        )
    }

    /// `POST /console/sign-in`. The session is new, whatever cookie the request has. A wrong key gets
    /// the same response at the same time whether the app exists or not.
    private func signIn(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        guard request.isOfThisSite else { throw ConsoleError.foreignForm }
        let form = try Self.form(of: request)
        let key = form["key"] ?? ""
        let proof = Proof(app: form.text("app"), rights: .master) { constantTimeEqual(key, $0) }
        let caller: Caller
        do {
            caller = try await context.admit(proof)
        } catch Refusal.unauthorized {
            return await signInPage(request, app: form.text("app"), isRefused: true)
        }
        let session = Session(
            of: caller.app,
            actor: AuditTrail.masterKeyActor,
            role: .admin,
            now: .now()
        )
        let next = request.queryValue("next").flatMap(Address.init(within:))
        return try begin(session, next: next)
    }

    /// Redirects to the page from which the sign-in came, if it is one of the session's app.
    func begin(
        _ session: Session,
        next: Address?,
        cookies: [String] = []
    ) throws -> HTTPServerResponse {
        let page = next.flatMap { $0.isOf(app: session.app) ? $0 : nil }
        return Self.redirect(
            to: page ?? Address(session.app),
            cookies: [ConsoleCookie.session.line(try sessions.sealed(session))] + cookies
        )
    }

    /// `POST /console/sign-out`. It is audited while the session holds.
    private func signOut(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        guard request.isOfThisSite else { throw ConsoleError.foreignForm }
        let form = try Self.form(of: request)
        let session = ConsoleCookie.session.value(in: request)
            .flatMap { sessions.open($0, now: .now()) }
        if let session {
            guard session.accepts(form[Form.tokenName]) else { throw ConsoleError.foreignForm }
            _ = try? await context.admit(session.proof)
        }
        return Self.redirect(
            to: Address("sign-in"),
            cookies: [ConsoleCookie.session.line("", seconds: 0)]
        )
    }
}
