import Apps
import Cryptography
import HTTPServer
import PushCore
import Testing

@testable import Console

@Suite("Sessions of the console")
struct SessionTests {
    private let sessions = Sessions(Self.keys("a"))
    private let now = Instant(milliseconds: 1_795_000_000_000)
    private let app = CachedApp(
        id: "bells",
        appKey: "app-key",
        masterKey: "master-key",
        settings: AppSettings()
    )

    private func session(_ role: Role = .admin) -> Session {
        Session(of: app, actor: "master-key", role: role, now: now)
    }

    private static func keys(_ id: String) -> KeyRing {
        do { return try KeyRing("\(id):" + Base64.encode(Array(repeating: 7, count: 32))) } catch {
            preconditionFailure("\(error)")
        }
    }

    @Test("A sealed session is opened again, until it expires")
    func opens() throws {
        let session = session(.viewer)
        let cookie = try sessions.sealed(session)
        #expect(sessions.open(cookie, now: now) == session)
        #expect(sessions.open(cookie, now: session.expiresAt) == nil)
    }

    @Test("An altered cookie, and one of other keys, is not accepted")
    func altered() throws {
        let cookie = try sessions.sealed(session())
        for index in stride(from: 0, to: cookie.utf8.count, by: 7) {
            var characters = Array(cookie)
            characters[index] = characters[index] == "A" ? "B" : "A"
            #expect(sessions.open(String(characters), now: now) == nil)
        }
        #expect(Sessions(Self.keys("b")).open(cookie, now: now) == nil)
        for text in ["", "x", "%", String(repeating: "A", count: 10_000)] {
            #expect(sessions.open(text, now: now) == nil)
        }
    }

    @Test("Each sign-in has new secrets, and a form needs its session's own")
    func secrets() {
        let (first, second) = (session(), session())
        #expect(first.formToken != second.formToken)
        #expect(first.accepts(first.formToken))
        #expect(!first.accepts(second.formToken))
        #expect(!first.accepts(nil))
        #expect(!first.accepts(""))
    }

    @Test(
        "A request of another site is told from one of this site",
        arguments: [
            ([:], true), (["origin": "http://localhost:8080"], true),
            (["origin": "http://evil.example"], false), (["origin": "null"], false),
            (["sec-fetch-site": "same-origin"], true), (["sec-fetch-site": "none"], true),
            (["sec-fetch-site": "cross-site"], false), (["sec-fetch-site": "same-site"], false),
            (["origin": "http://localhost:8080/x"], false),
        ] as [([String: String], Bool)]
    )
    func sites(headers: [String: String], isOurs: Bool) throws {
        var fields: HTTPHeaders = ["host": "localhost:8080"]
        for (name, value) in headers { fields.add(name, value) }
        let request = try HTTPServerRequest(.post, "/console/look", headers: fields)
        #expect(request.isOfThisSite == isOurs)
    }

    @Test("A role has the rights of those before it")
    func roles() {
        #expect(Role.viewer < .sender)
        #expect(Role.sender < .admin)
        #expect(!(Role.admin < .viewer))
    }
}
