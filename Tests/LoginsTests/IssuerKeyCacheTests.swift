import Cryptography
import JSON
import Observability
import Support
import Synchronization
import Testing

@testable import Logins

@Suite("An issuer's keys", .timeLimit(.minutes(1)))
struct IssuerKeyCacheTests {
    private static let ann = TokenIdentity(app: "shop", identity: "ann")

    /// Makes a token that was not used before.
    private func token(_ issuer: Issuer, _ bench: LoginBench) throws -> String {
        try issuer.token(bench.claims(issuer, ["jti": .string(TestEnvironment.unique(""))]))
    }

    @Test(
        "While an issuer is unavailable its keys stay valid for a day after expiry, then it is 503"
    )
    func away() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let directory = bench.directory()
            func reader() async throws -> TokenIdentity {
                try await directory.reader(of: try token(issuer, bench), app: "shop")
            }
            let first = try await reader()
            #expect(first == Self.ann)
            issuer.goAway()
            // They are fresh for an hour.
            for wait in [60, 3600, 3600, 70_000] {
                bench.pass(.seconds(wait))
                #expect(try await reader() == Self.ann)
            }
            #expect(issuer.asked == 1, "nobody waits for an issuer while there are keys")
            bench.pass(.seconds(3600 + 86_400 - 77_260 - 1))
            #expect(try await reader() == Self.ann)
            bench.pass(.seconds(1))
            await #expect(throws: LoginRefusal.unavailable) { try await reader() }
            #expect(issuer.asked == 2)
            issuer.goAway(false)
            bench.pass(.seconds(61))
            #expect(try await reader() == Self.ann)
        }
    }

    @Test("A restart works without the issuer, and an issuer that never answered has no keys")
    func restart() async throws {
        let (issuer, silent) = (try Issuer(), try Issuer("https://silent.example"))
        try await LoginBench.run([issuer, silent], []) { bench in
            bench.logins = [
                bench.login(of: issuer), bench.login(of: silent, app: "games"),
            ]
            let first = try await bench.directory().reader(of: try token(issuer, bench), app: nil)
            #expect(first == Self.ann)
            issuer.goAway()
            silent.goAway()
            bench.pass(.seconds(7200))
            let directory = bench.directory()
            #expect(
                try await directory.reader(of: try token(issuer, bench), app: nil) == Self.ann
            )
            #expect(issuer.asked == 1)
            for _ in 0..<5 {
                await #expect(throws: LoginRefusal.unavailable) {
                    try await directory.reader(of: try token(silent, bench), app: nil)
                }
            }
            #expect(silent.asked == 1)
        }
    }

    @Test("A new key is loaded by every replica with the first token that it has signed")
    func rotated() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let replicas = [bench.directory(), bench.directory()]
            let old = try #require(issuer.key)
            for replica in replicas {
                #expect(
                    try await replica.reader(of: try token(issuer, bench), app: nil) == Self.ann
                )
            }
            bench.pass(.seconds(61))
            try issuer.rotate(to: "k2")
            for replica in replicas {
                #expect(
                    try await replica.reader(of: try token(issuer, bench), app: nil) == Self.ann
                )
            }
            #expect(issuer.asked == 2, "one has asked, the other has read")
            let late = try issuer.token(
                bench.claims(issuer),
                header: ["kid": "k1"],
                with: old
            )
            for replica in replicas {
                await #expect(throws: LoginRefusal.refused(.unknownKey)) {
                    try await replica.reader(of: late, app: nil)
                }
            }
        }
    }

    @Test("A replica that may not fetch waits for the one that does")
    func waits() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let replicas = [bench.directory(), bench.directory()]
            for replica in replicas {
                _ = try await replica.reader(of: try token(issuer, bench), app: nil)
            }
            bench.pass(.seconds(61))
            try issuer.rotate(to: "k2")
            issuer.hold()
            try await withThrowingTaskGroup(of: TokenIdentity.self) { group in
                for replica in replicas {
                    let fresh = try token(issuer, bench)
                    group.addTask { try await replica.reader(of: fresh, app: nil) }
                }
                // Both have looked, and the one that may not fetch has begun to look again.
                _ = try await eventually("both look") { bench.looks >= 6 ? true : nil }
                #expect(issuer.asked == 2)
                issuer.letGo()
                for try await reader in group { #expect(reader == Self.ann) }
            }
            #expect(issuer.asked == 2)
        }
    }

    @Test("Unknown key ids cause one fetch a minute, and one database query a second")
    func storm() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let directory = bench.directory()
            _ = try await directory.reader(of: try token(issuer, bench), app: nil)
            bench.pass(.seconds(61))
            for round in 0..<3 {
                await withTaskGroup(of: LoginRefusal?.self) { group in
                    for number in 0..<200 {
                        group.addTask {
                            try? await refusal {
                                let token = try issuer.token(
                                    bench.claims(issuer),
                                    header: ["kid": .string("made up \(round) \(number)")]
                                )
                                return try await directory.reader(of: token, app: "shop")
                            }
                        }
                    }
                    for await refusal in group { #expect(refusal == .refused(.unknownKey)) }
                }
                bench.pass(.seconds(2))
            }
            #expect(issuer.asked == 2)
            #expect(bench.looks <= 10, "\(bench.looks)")
            // A caller with a valid token is not affected.
            #expect(try await directory.reader(of: try token(issuer, bench), app: nil) == Self.ann)
            bench.pass(.seconds(61))
            try issuer.rotate(to: "k2")
            #expect(try await directory.reader(of: try token(issuer, bench), app: nil) == Self.ann)
            #expect(issuer.asked == 3)
        }
    }

    @Test("A token without a kid is tried with the cached keys, then with new ones")
    func nameless() async throws {
        let issuer = try Issuer(kid: nil)
        try await LoginBench.run([issuer]) { bench in
            let directory = bench.directory()
            #expect(try await directory.reader(of: try token(issuer, bench), app: nil) == Self.ann)
            let stranger = try SigningKey.generateP256()
            await #expect(throws: LoginRefusal.refused(.signature)) {
                try await directory.reader(
                    of: try issuer.token(bench.claims(issuer), with: stranger),
                    app: nil
                )
            }
            bench.pass(.seconds(61))
            try issuer.rotate(to: nil)
            #expect(try await directory.reader(of: try token(issuer, bench), app: nil) == Self.ann)
            #expect(issuer.asked == 2)
        }
    }

    @Test("Keys are refreshed once for all before they are stale, and retried each minute")
    func renewal() async throws {
        let issuer = try Issuer()
        issuer.state.withLock { $0.freshFor = .seconds(300) }
        try await LoginBench.run([issuer]) { bench in
            let (keys, others) = (bench.keys(), bench.keys())
            try await keys.renew()
            #expect(issuer.asked == 1, "before anybody has shown a token")
            for _ in 0..<3 { try await keys.renew() }
            bench.pass(.seconds(239))
            try await keys.renew()
            #expect(issuer.asked == 1)
            bench.pass(.seconds(2))
            for _ in 0..<3 {
                try await keys.renew()
                try await others.renew()
            }
            #expect(issuer.asked == 2)
            issuer.goAway()
            bench.pass(.seconds(250))
            for _ in 0..<4 {
                for _ in 0..<3 { try await keys.renew() }
                bench.pass(.seconds(60))
            }
            #expect(issuer.asked == 6)
            let told = bench.metrics.counter(.jwksFetches, ["result": "unreachable"]).value
            #expect(told == 4)
            #expect(bench.metrics.counter(.jwksFetches, ["result": "ok"]).value == 2)
        }
    }

    @Test("Keys that another replica fetched are loaded, and a removed key is not valid any more")
    func refreshed() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let (keys, others) = (bench.keys(), bench.keys())
            #expect(try await keys.keys(of: issuer.url)?.keys.map(\.kid) == ["k1"])
            try issuer.rotate(to: "k2")
            bench.pass(.seconds(3000))
            try await others.renew()
            #expect(try await keys.keys(of: issuer.url)?.keys.map(\.kid) == ["k1"])
            let looks = bench.looks
            try await keys.refresh()
            #expect(try await keys.keys(of: issuer.url)?.keys.map(\.kid) == ["k2"])
            #expect(bench.looks == looks && issuer.asked == 2)
        }
    }
}
