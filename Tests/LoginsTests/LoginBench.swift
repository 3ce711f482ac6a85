import Cryptography
import EventLoop
import JSON
import Observability
import PushCore
import Support
import Synchronization
import Testing

@testable import Logins

/// An issuer that publishes its keys, or is unavailable, and counts its requests.
final class Issuer: Sendable {
    struct State {
        var keys: [(kid: String?, key: SigningKey)]
        var freshFor = Duration.seconds(3600)
        var isAway = false
        var asked = 0
        var held: [CheckedContinuation<Void, Never>]?
    }

    let name: String
    let state: Mutex<State>

    init(_ name: String = "https://id.example", kid: String? = "k1") throws {
        self.name = name
        state = Mutex(State(keys: [(kid, try SigningKey.generateP256())]))
    }

    var url: String { name + "/jwks" }
    var asked: Int { state.withLock(\.asked) }
    var key: SigningKey? { state.withLock { $0.keys.last?.key } }
    var kid: String? { state.withLock { $0.keys.last?.kid } }

    /// Publishes another key instead of the earlier ones.
    func rotate(to kid: String?) throws {
        let key = try SigningKey.generateP256()
        state.withLock { $0.keys = [(kid, key)] }
    }

    func goAway(_ isAway: Bool = true) { state.withLock { $0.isAway = isAway } }

    /// Makes its responses wait from now on.
    func hold() { state.withLock { $0.held = [] } }

    func letGo() {
        let held = state.withLock { state in
            defer { state.held = nil }
            return state.held ?? []
        }
        for one in held { one.resume() }
    }

    fileprivate func answer() async -> Result<FetchedKeys, JWKSFault> {
        state.withLock { $0.asked += 1 }
        await withCheckedContinuation { continuation in
            let waits = state.withLock { state in
                state.held?.append(continuation)
                return state.held != nil
            }
            if !waits { continuation.resume() }
        }
        let (keys, freshFor, isAway) = state.withLock { ($0.keys, $0.freshFor, $0.isAway) }
        guard !isAway else { return .failure(.unreachable("away")) }
        do {
            let set = try JWKSet(["keys": .array(try keys.map { try publicJWK($0.key, $0.kid) })])
            return .success(FetchedKeys(set: set, freshFor: freshFor))
        } catch {
            return .failure(.noSet("\(error)"))
        }
    }

    /// Signs a token, by its last key unless another is given.
    func token(
        _ claims: JSONObject,
        header: JSONObject? = nil,
        with key: SigningKey? = nil
    ) throws -> String {
        let key = try #require(key ?? self.key)
        return try JWT.sign(
            header: header ?? (kid.map { ["kid": .string($0)] } ?? [:]),
            claims: claims,
            with: key
        )
    }
}

/// A Postgres for logins and keys, and clocks that the test sets.
final class LoginBench: Sendable {
    private struct Row {
        var keys: JSONValue?
        var fetchedAt: Duration?
        var freshUntil: Duration?
        var askedAt: Duration?
        var answeredAt: Duration?
        var stamp = 0
    }

    private struct State {
        var logins: [StoredLogin] = []
        var rows: [String: Row] = [:]
        var looks = 0
        var statements = 0
        var elapsed = Duration.zero
    }

    private let state = Mutex(State())
    private let began = ContinuousClock.now
    private let wallBegan = Instant(seconds: 1_800_000_000)
    let issuers: [Issuer]
    let loop: EventLoop
    let metrics = Metrics()

    private init(_ issuers: [Issuer], _ loop: EventLoop) {
        self.issuers = issuers
        self.loop = loop
    }

    static func run(
        _ issuers: [Issuer],
        _ logins: [StoredLogin]? = nil,
        _ body: (LoginBench) async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "logins")
        let bench = LoginBench(issuers, loop)
        bench.logins = logins ?? issuers.map { bench.login(of: $0) }
        let result: Result<Void, any Error>
        do { result = .success(try await body(bench)) } catch { result = .failure(error) }
        await loop.stop()
        try result.get()
    }

    func login(
        of issuer: Issuer,
        app: String = "shop",
        audience: String = "phones",
        prefix: String = ""
    ) -> StoredLogin {
        StoredLogin(
            app: app,
            issuer: issuer.name,
            audience: audience,
            keys: .url(issuer.url),
            identityPrefix: prefix,
            createdAt: wallBegan
        )
    }

    var logins: [StoredLogin] {
        get { state.withLock(\.logins) }
        set { state.withLock { $0.logins = newValue } }
    }

    /// The number of look-ups of an address' keys.
    var looks: Int { state.withLock(\.looks) }
    /// The number of database statements.
    var statements: Int { state.withLock(\.statements) }

    func pass(_ duration: Duration) { state.withLock { $0.elapsed += duration } }

    private var steadyNow: ContinuousClock.Instant { began + state.withLock(\.elapsed) }

    var now: Instant { wallBegan.adding(state.withLock(\.elapsed)) }

    func directory() -> LoginCache {
        LoginCache(
            rows,
            source,
            on: loop,
            metrics: metrics,
            steadyClock: { self.steadyNow },
            wallClock: { self.now }
        )
    }

    func keys() -> IssuerKeyCache {
        IssuerKeyCache(
            rows,
            source,
            on: loop,
            log: .disabled,
            metrics: metrics,
            now: { self.steadyNow }
        )
    }

    private var source: JWKSSource {
        JWKSSource { [issuers] url in
            guard let issuer = issuers.first(where: { $0.url == url }) else {
                return .failure(.notAllowed)
            }
            return await issuer.answer()
        }
    }

    /// Returns valid claims.
    func claims(_ issuer: Issuer, _ changes: JSONObject = [:]) -> JSONObject {
        var claims: JSONObject = [
            "iss": .string(issuer.name), "aud": "phones", "sub": "ann",
            "exp": JSONValue(Int(now.seconds) + 600),
        ]
        for (name, value) in changes { claims[name] = value }
        return claims
    }

    // MARK: The rows

    private func count() { state.withLock { $0.statements += 1 } }

    private var rows: LoginRows {
        LoginRows(
            logins: { app in
                self.count()
                return self.logins.filter { $0.app == app }
            },
            apps: { issuer, audiences in
                self.count()
                let fitting = self.logins.filter {
                    $0.issuer == issuer && audiences.contains($0.audience)
                }
                return Array(Set(fitting.map(\.app)).sorted().prefix(2))
            },
            keys: { url in
                self.count()
                self.state.withLock { $0.looks += 1 }
                return self.stored(url)
            },
            changed: { known in
                self.count()
                return known.compactMap { entry in
                    self.stored(entry.url).flatMap { $0.stamp == entry.stamp ? nil : $0 }
                }
            },
            claim: { self.claim($0) },
            keep: { url, keys, freshFor in
                self.state.withLock { state in
                    var row = state.rows[url] ?? Row()
                    row.keys = keys
                    (row.fetchedAt, row.answeredAt) = (state.elapsed, state.elapsed)
                    row.freshUntil = state.elapsed + freshFor
                    row.stamp += 1
                    state.rows[url] = row
                }
            },
            recordFailure: { url in
                self.state.withLock { state in state.rows[url]?.answeredAt = state.elapsed }
            },
            due: { self.due() },
            oldestAge: { .zero },
            prune: {}
        )
    }

    private func stored(_ url: String) -> StoredJWKS? {
        state.withLock { state in
            guard let row = state.rows[url] else { return nil }
            let isBeingAsked = row.askedAt.map { asked in row.answeredAt.map { $0 < asked } ?? true
            }
            return StoredJWKS(
                url: url,
                keys: row.keys,
                stamp: row.stamp,
                age: row.fetchedAt.map { state.elapsed - $0 } ?? .zero,
                freshFor: row.freshUntil.map { $0 - state.elapsed } ?? .zero,
                askedAgo: row.askedAt.map { state.elapsed - $0 },
                isBeingAsked: isBeingAsked ?? false
            )
        }
    }

    private func claim(_ url: String) -> Bool {
        state.withLock { state in
            state.statements += 1
            var row = state.rows[url] ?? Row()
            if let asked = row.askedAt, state.elapsed - asked < JWKSStore.askInterval {
                return false
            }
            row.askedAt = state.elapsed
            // This distinguishes it from an answer at the same time of a clock that has stopped.
            if row.answeredAt == state.elapsed { row.answeredAt = state.elapsed - .seconds(1) }
            state.rows[url] = row
            return true
        }
    }

    private func due() -> [String] {
        let urls = Set(logins.compactMap(\.url))
        return state.withLock { state in
            urls.filter { url in
                guard let row = state.rows[url] else { return true }
                if let asked = row.askedAt, state.elapsed - asked < JWKSStore.askInterval {
                    return false
                }
                guard let fetched = row.fetchedAt, let until = row.freshUntil else { return true }
                return state.elapsed > fetched + (until - fetched) * 0.8
            }
        }
    }
}

/// Returns why a token is refused; `nil` if it is accepted.
func refusal(_ body: () async throws -> TokenIdentity) async throws -> LoginRefusal? {
    do {
        _ = try await body()
        return nil
    } catch let refusal as LoginRefusal {
        return refusal
    }
}
