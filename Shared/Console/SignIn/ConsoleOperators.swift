import Apps
package import Cryptography
package import EventLoop
import JSON
package import Logins
package import Observability
import PushCore
package import Storage

/// Sign-in of operators through OIDC issuers, on one loop.
///
/// Authority: `console_logins`, cached for a few seconds and read again when the database notifies.
/// So a session ends on every replica when its login is removed or set again.
package actor ConsoleOperators {
    nonisolated private let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private static let lifetime = Duration.seconds(5)
    /// The most exchanges of codes at once; each waits for an issuer, for seconds at most.
    private static let maximumExchanges = 16
    /// The most of them at one login, so that an issuer that does not answer leaves room for others.
    private static let maximumExchangesOfLogin = 4

    /// The console's public origin, without a slash at its end.
    nonisolated let origin: String
    nonisolated let keys: KeyRing
    private let database: PushDatabase
    private let client: IssuerClient
    private let tokens: LoginCache
    private let log: Log
    private let cache: Cache<[StoredConsoleLogin]>
    /// The exchanges in flight, by the stamp of their login.
    private var exchanges: [String: Int] = [:]

    /// Makes the sign-in of a console at this public origin, such as `https://push.example.com`. The
    /// `keys` seal cookies and client secrets, and `issuers` are the hosts that may be asked.
    package init(
        origin: String,
        _ database: PushDatabase,
        keys: KeyRing,
        issuers: JWKSConfiguration,
        on loop: EventLoop,
        log: Log,
        metrics: Metrics
    ) {
        self.origin = origin
        self.keys = keys
        self.database = database
        self.loop = loop
        self.log = log
        client = IssuerClient(issuers, on: loop)
        tokens = LoginCache(
            database,
            JWKSSource(issuers, on: loop),
            renewingKeysOf: .operators,
            on: loop,
            log: log,
            metrics: metrics
        )
        cache = Cache(.init(fresh: Self.lifetime), of: .database(database), on: loop)
    }

    /// Listens for changes of logins and renews the issuers' keys, until its task is cancelled.
    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await self.tokens.run() }
            group.addTask { await self.listen() }
            try await group.waitForAll()
        }
    }

    private func listen() async {
        guard (try? await database.untilReady()) != nil else { return }
        await database.listen(to: .credentials) { _ in
            Task(executorPreference: self.loop) { await self.forget() }
        }
    }

    private func forget() { cache.changed(nil) }

    // MARK: Logins

    /// Returns the logins of all apps, by name.
    func logins() async throws -> [StoredConsoleLogin] {
        let database = database
        return try await cache.value("") { _ in try await database.consoleLogins.list() } ?? []
    }

    func login(named name: String) async throws -> StoredConsoleLogin? {
        try await logins().first { $0.name == name }
    }

    /// Whether the login by which an operator signed in is still the app's.
    func holds(_ stamp: String, ofApp app: String) async throws -> Bool {
        try await logins().contains { $0.stamp == stamp && $0.app == app }
    }

    /// The address at which the issuer returns the browser.
    nonisolated func redirectURI(of login: StoredConsoleLogin) -> String {
        "\(origin)/console/sign-in/\(login.name)/return"
    }

    // MARK: Codes

    /// Exchanges a code, and verifies the token.
    ///
    /// - Throws: `SignInFault`, or `StorageError` if the database cannot answer.
    func person(
        by code: String,
        in flow: SignInFlow,
        at login: StoredConsoleLogin
    ) async throws -> Operator {
        let claims = try await claims(by: code, in: flow, at: login)
        guard let person = Operator(claims, by: login) else {
            throw refused(login, "it has no claim that names the person", .refusedToken)
        }
        return person
    }

    private func claims(
        by code: String,
        in flow: SignInFlow,
        at login: StoredConsoleLogin
    ) async throws -> JSONObject {
        let token = try await token(by: code, in: flow, at: login)
        do {
            return try await tokens.claims(ofIDToken: token, for: login, nonce: flow.nonce)
        } catch let refusal as LoginRefusal {
            switch refusal {
            case .refused(let fault): throw refused(login, fault.text, .refusedToken)
            case .unavailable: throw refused(login, "its keys are unavailable", .unavailable)
            }
        }
    }

    private func token(
        by code: String,
        in flow: SignInFlow,
        at login: StoredConsoleLogin
    ) async throws -> String {
        let own = exchanges[login.stamp] ?? 0
        guard own < Self.maximumExchangesOfLogin,
            exchanges.values.reduce(0, +) < Self.maximumExchanges
        else { throw SignInFault.unavailable }
        exchanges[login.stamp] = own + 1
        defer {
            let left = (exchanges[login.stamp] ?? 1) - 1
            exchanges[login.stamp] = left > 0 ? left : nil
        }
        let exchange = CodeExchange(
            tokenURL: login.tokenURL,
            clientID: login.clientID,
            clientSecret: try secret(of: login),
            isSecretInHeader: login.isSecretInHeader,
            code: code,
            redirectURI: redirectURI(of: login),
            verifier: flow.verifier
        )
        switch await client.exchange(exchange) {
        case .success(let token): return token
        case .failure(let fault):
            switch fault {
            case .unavailable, .noToken: throw refused(login, fault.text, .unavailable)
            case .refused: throw refused(login, fault.text, .refusedCode)
            }
        }
    }

    private func secret(of login: StoredConsoleLogin) throws -> String? {
        guard let sealed = login.clientSecretSealed else { return nil }
        return String(decoding: try keys.open(sealed, context: login.context), as: UTF8.self)
    }

    /// Logs the reason, which is not shown.
    private func refused(
        _ login: StoredConsoleLogin,
        _ reason: String,
        _ fault: SignInFault
    ) -> SignInFault {
        log.warning(
            "a sign-in to the console failed",
            [.app: .string(login.app), .name: .string(login.name), .reason: .string(reason)]
        )
        return fault
    }
}
