import Cryptography
import Logins
import PushCore
import Storage

/// The checks of logins: their keys must exist and be renewed.
extension Doctor {
    /// The number of parallel requests, so that several unreachable issuers cost a few seconds altogether.
    private static let atOnce = 8
    /// Keys are renewed about every hour, and a failed renewal is retried each minute. If keys are
    /// stale for longer than this, no service renews them.
    private static let timeLimit = Duration.seconds(300)
    private static let hold = Duration.seconds(86_400)

    mutating func examineLogins(_ database: PushDatabase) async throws {
        let logins = try await database.logins.list()
        let consoleLogins = try await database.consoleLogins.list()
        guard !logins.isEmpty || !consoleLogins.isEmpty else { return }
        if !logins.isEmpty {
            ok("logins", "\(logins.count) of \(Set(logins.map(\.app)).count) app(s)")
        }
        if !consoleLogins.isEmpty {
            let apps = Set(consoleLogins.map(\.app)).count
            ok("console logins", "\(consoleLogins.count) of \(apps) app(s)")
        }
        for login in logins {
            guard case .fixed(let json) = login.keys else { continue }
            if (try? JWKSet(json))?.keys.isEmpty ?? true {
                fail(
                    "login \(login.app) \(Terminal.short(login.issuer, 120))",
                    "it has no usable key: set it again"
                )
            }
        }
        let known = try await database.jwks.all()
        guard !known.isEmpty else { return }
        let configuration: JWKSConfiguration
        do {
            configuration = try context.jwks()
        } catch {
            return fail("logins", "\(error)")
        }
        let source = JWKSSource(configuration, on: context.loop)
        let answers = await Self.ask(known.map(\.url), source)
        for ((url, stored), answer) in zip(known, answers) {
            let (status, detail) = Self.assess(stored, answer)
            found("jwks \(Terminal.short(url, 200))", status, detail)
        }
    }

    private typealias Answer = Result<FetchedKeys, JWKSFault>

    private static func ask(_ urls: [String], _ source: JWKSSource) async -> [Answer?] {
        await withTaskGroup(of: (Int, Answer).self) { group in
            var answers = [Answer?](repeating: nil, count: urls.count)
            for (number, url) in urls.enumerated() {
                if number >= atOnce, let (known, answer) = await group.next() {
                    answers[known] = answer
                }
                group.addTask { (number, await source.fetch(url)) }
            }
            for await (number, answer) in group { answers[number] = answer }
            return answers
        }
    }

    /// Assesses an issuer's keys.
    ///
    /// - Parameters:
    ///   - stored: The keys that the services have.
    ///   - answer: The issuer's current answer.
    /// - Returns: The status, and the message.
    private static func assess(_ stored: StoredJWKS?, _ answer: Answer?) -> (Status, String) {
        let kept = stored.flatMap { $0.keys == nil ? nil : $0 }
        let fetchedAt = kept.map { Instant.now().adding(.zero - $0.age).iso8601 } ?? "never"
        switch answer {
        case .failure(let fault):
            guard let kept, kept.freshFor > .zero - hold else {
                return (.failed, "\(fault.text); no keys are known that hold: tokens get 503")
            }
            let end = Instant.now().adding(kept.freshFor + hold).iso8601
            return (.warning, "\(fault.text); the keys of \(fetchedAt) hold until \(end)")
        case .success(let fetched):
            guard let kept, kept.freshFor > .zero - timeLimit else {
                return (
                    .warning,
                    "the issuer shows keys; they were fetched last \(fetchedAt): does a"
                        + " secure-payload service run, or for a console login registration with"
                        + " CONSOLE_URL?"
                )
            }
            return (.ok, "\(fetched.set.keys.count) key(s), fetched \(fetchedAt)")
        case nil: return (.warning, "was not asked")
        }
    }
}
