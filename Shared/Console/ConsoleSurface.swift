// The console: web pages for people, at `/console` of the registration service.
//
// A request is a `Visit` once its session is verified: the cookie is opened (`Sessions`), the
// gateway admits its app (`Session.proof`), the role is compared with the page's, and a posted form
// must carry the session's token. Operators sign in at an issuer (`ConsoleOperators`); their session
// holds as long as its login. A page's handler returns a `Page`, and `Frame` draws it. Markup is
// made by `HTML`, which escapes by construction.
//
// Authority: a page shows and changes rows by the stores of all other surfaces; it has no rows but
// drafts. Everything works without the script.

import Apps
package import Cryptography
package import DeadLetters
package import EventLoop
package import Gateway
package import HTTPServer
package import Outbox
import PushCore
package import Storage

/// The console of one loop.
package struct ConsoleSurface: Surface {
    let database: PushDatabase
    let loop: EventLoop
    let sessions: Sessions
    let acceptance: PushAcceptance
    /// The threads on which templates are parsed.
    let pool: FairPool
    /// Sign-in through issuers; `nil`: with the master key only.
    let operators: ConsoleOperators?
    let deadLetters: DeadLetterLog
    /// The hosts that the `token_uri` of a service account may name.
    let fcmTokenHosts: [String]
    let files = StaticFiles()

    package init(
        _ database: PushDatabase,
        keys: KeyRing,
        acceptance: PushAcceptance,
        deadLetters: DeadLetterLog,
        fcmTokenHosts: [String],
        on loop: EventLoop,
        operators: ConsoleOperators? = nil
    ) {
        self.database = database
        self.loop = loop
        pool = FairPool(on: loop)
        sessions = Sessions(keys)
        self.acceptance = acceptance
        self.operators = operators
        self.deadLetters = deadLetters
        self.fcmTokenHosts = fcmTokenHosts
    }

    package func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/console") }

    package var routes: [SurfaceRoute] {
        let services = [
            configRoutes, configEditRoutes, configRollbackRoutes, syncRoutes, secureRoutes,
            ingestRoutes, connectionRoutes, importRoutes, deadLetterRoutes, deadLetterReplayRoutes,
        ]
        let devices = [
            deviceRoutes, deviceHistoryRoutes, deviceActionRoutes, testDeviceRoutes,
            savedFilterRoutes,
        ]
        return signInRoutes + issuerRoutes + lookRoutes + overviewRoutes + pushRoutes
            + pushFileRoutes + sendRoutes + devices.flatMap(\.self) + explainRoutes
            + services.flatMap(\.self) + healthRoutes + credentialRoutes + operationRoutes
    }

    private var lookRoutes: [SurfaceRoute] {
        [
            SurfaceRoute(
                .get,
                "/console/assets/:file",
                handler: .unauthenticated { request, _ in
                    guard let response = files.response(request.pathParameters["file"] ?? "")
                    else { throw Refusal.nothingHere }
                    return response
                }
            ),
            SurfaceRoute(
                .post,
                "/console/look",
                maximumBodyBytes: 4096,
                handler: .unauthenticated { request, _ in try changeLook(request) }
            ),
        ]
    }

    /// `POST /console/look`: stores theme and language in a cookie.
    private func changeLook(_ request: HTTPServerRequest) throws -> HTTPServerResponse {
        guard request.isOfThisSite else { throw ConsoleError.foreignForm }
        let form = try Self.form(of: request)
        let look = Look(
            theme: Look.Theme(rawValue: form.text("theme")) ?? .system,
            language: Language(rawValue: form.text("language"))
        )
        let next = Address(within: form.text("next")) ?? Address([])
        return Self.redirect(to: next, cookies: [look.cookie])
    }

    // MARK: Pages

    /// Makes a route of a page, for people with at least this role.
    func page(
        _ method: HTTPMethod,
        _ pattern: String,
        for role: Role,
        maximumBodyBytes: Int = Form.maximumBytes,
        _ handler: @escaping @Sendable (Visit) async throws -> PageAnswer
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            "/console/:app" + pattern,
            appName: "app",
            maximumBodyBytes: maximumBodyBytes,
            handler: .unauthenticated { request, context in
                let visit = try await visit(request, context, needs: role)
                return try response(to: visit, try await handler(visit))
            }
        )
    }

    /// Makes a route of a form with a file, which is read as it arrives. It has no form of a plain kind.
    func upload(
        _ pattern: String,
        for role: Role,
        _ handler: @escaping @Sendable (Visit, UploadedFile) async throws -> PageAnswer
    ) -> SurfaceRoute {
        SurfaceRoute(
            .post,
            "/console/:app" + pattern,
            appName: "app",
            maximumBodyBytes: UploadedForm.maximumBytes + UploadedForm.overheadBytes,
            streamsBody: true,
            handler: .unauthenticated { request, context in
                let now = Instant.now()
                let (session, caller) = try await signedIn(request, context, needs: role, now: now)
                var upload = try UploadedForm(request)
                return try await UploadSlots.use(of: session.app) {
                    let (form, file) = try await upload.begin()
                    let visit = try visit(request, caller, session, form, now: now)
                    return try response(to: visit, try await handler(visit, file))
                }
            }
        )
    }

    /// Verifies the session, the role and the form.
    private func visit(
        _ request: HTTPServerRequest,
        _ context: RequestContext,
        needs role: Role
    ) async throws -> Visit {
        let now = Instant.now()
        let (session, caller) = try await signedIn(request, context, needs: role, now: now)
        var request = request
        var form = Form()
        if request.method == .post {
            try request.decodeBody()
            form = try Self.form(of: request)
        }
        return try visit(request, caller, session, form, now: now)
    }

    /// Verifies the session and the role.
    private func signedIn(
        _ request: HTTPServerRequest,
        _ context: RequestContext,
        needs role: Role,
        now: Instant
    ) async throws -> (Session, Caller) {
        guard
            let session = ConsoleCookie.session.value(in: request)
                .flatMap({ sessions.open($0, now: now) })
        else { throw ConsoleError.signedOut }
        guard request.pathParameters["app"] == session.app else {
            throw ConsoleError.otherApp(signedInTo: session.app)
        }
        guard try await holds(session) else { throw ConsoleError.signedOut }
        let caller = try await context.admit(session.proof)
        // Acts are audited, views are not.
        if request.method != .post { context.isAudited = true }
        guard session.role >= role else { throw ConsoleError.missingRole(role) }
        return (session, caller)
    }

    private func visit(
        _ request: HTTPServerRequest,
        _ caller: Caller,
        _ session: Session,
        _ form: Form,
        now: Instant
    ) throws -> Visit {
        if request.method == .post {
            guard request.isOfThisSite, session.accepts(form[Form.tokenName]) else {
                throw ConsoleError.foreignForm
            }
        }
        let look = Look(request)
        return Visit(
            request: request,
            caller: caller,
            session: session,
            t: Words(look.language(for: request), now: now),
            look: look,
            form: form
        )
    }

    /// Whether an operator's login is still as it was at the sign-in.
    private func holds(_ session: Session) async throws -> Bool {
        switch session.basis {
        case .key: true
        case .login(let stamp):
            try await operators?.holds(stamp, ofApp: session.app) ?? false
        }
    }

    static func form(of request: HTTPServerRequest) throws -> Form {
        let type = request.header("content-type") ?? ""
        guard type.lowercased().hasPrefix("application/x-www-form-urlencoded") else {
            throw ConsoleError.badForm
        }
        let fields: [(name: String, value: String)]
        do throws(HTTPProblem) { fields = try parseForm(request.body) } catch {
            throw ConsoleError.badForm
        }
        return try Form(fields)
    }

    private func response(to visit: Visit, _ answer: PageAnswer) throws -> HTTPServerResponse {
        switch answer {
        case .page(let page):
            let flash = ConsoleCookie.flash.value(in: visit.request)
                .flatMap(Flash.init(rawValue:))
            let frame = Frame(t: visit.t, look: visit.look, files: files)
            var response = Self.page(
                frame.html(page, visit, flash: flash),
                status: page.status
            )
            if flash != nil {
                response.headers.add("Set-Cookie", ConsoleCookie.flash.line("", seconds: 0))
            }
            return response
        case .redirect(let address, let flash):
            let cookies = flash.map { [ConsoleCookie.flash.line($0.rawValue, seconds: 60)] }
            return Self.redirect(to: address, cookies: cookies ?? [])
        case .file(let name, let file): return Self.file(name, file)
        }
    }

    static func redirect(to address: Address, cookies: [String] = []) -> HTTPServerResponse {
        redirect(toURL: address.text, cookies: cookies)
    }

    /// Redirects to an address that may be of another host: an issuer's.
    static func redirect(toURL url: String, cookies: [String]) -> HTTPServerResponse {
        var response = HTTPServerResponse(status: 303, headers: ["Location": url])
        response.headers.add("Cache-Control", "no-store")
        for cookie in cookies { response.headers.add("Set-Cookie", cookie) }
        return response
    }

    static func page(_ html: HTML, status: Int = 200) -> HTTPServerResponse {
        HTTPServerResponse(
            status: status,
            headers: HTTPHeaders(pageHeaders),
            body: Array(html.markup.utf8)
        )
    }

    private static let pageHeaders: [HTTPHeaders.Field] = [
        .init(name: "Content-Type", value: "text/html; charset=utf-8"),
        .init(name: "Cache-Control", value: "no-store"),
        .init(
            name: "Content-Security-Policy",
            value: "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
                + "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        ),
        .init(name: "X-Content-Type-Options", value: "nosniff"),
        .init(name: "X-Frame-Options", value: "DENY"),
        .init(name: "Referrer-Policy", value: "same-origin"),
        .init(name: "Cross-Origin-Opener-Policy", value: "same-origin"),
        .init(name: "Cross-Origin-Resource-Policy", value: "same-origin"),
    ]

    private static func file(_ name: String, _ file: HTTPFile) -> HTTPServerResponse {
        var response = HTTPServerResponse(
            status: 200,
            headers: [
                "Content-Type": file.contentType,
                "Content-Disposition": "attachment; filename=\"\(name)\"",
                "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
            ]
        )
        response.stream = HTTPBodyStream { writer in
            try await file.write { try await writer.write(Array($0.utf8)) }
        }
        return response
    }
}

extension HTTPServerRequest {
    /// Whether a browser says that a page of this site sent the request. A client without a browser
    /// sends neither header.
    var isOfThisSite: Bool {
        // Unlike `Host`, a proxy leaves this header as it is.
        if let site = header("sec-fetch-site") { return site == "same-origin" || site == "none" }
        guard let origin = header("origin") else { return true }
        let parts = origin.split(separator: "/", omittingEmptySubsequences: false)
        guard let host = header("host"), parts.count == 3 else { return false }
        return parts[2].lowercased() == host.lowercased()
    }
}
