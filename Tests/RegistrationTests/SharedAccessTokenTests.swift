import PushCore
import Testing

@testable import Registration

@Suite("Shared access signatures", .timeLimit(.minutes(1)))
struct SharedAccessTokenTests {
    private func token(
        sr: String = "http%3A%2F%2F127.0.0.1%3A8080%2F",
        sig: String = "vgsQuDsSJFDyshp%2BL3dVCzZBrTPOE04KhW8Y2gK7CGk%3D",
        rest: String = "&se=1700000000&skn=K"
    ) throws -> SharedAccessToken {
        try #require(
            SharedAccessToken(authorization: "SharedAccessSignature sr=\(sr)&sig=\(sig)\(rest)")
        )
    }

    @Test(
        "The signature is verified over the resource's exact text, with the case of its escapes"
    )
    func vectors() throws {
        let upper = try token()
        #expect(upper.isSigned(by: "a2V5"))
        #expect(!upper.isSigned(by: "a2V6"))
        #expect(!upper.isSigned(by: ""))
        #expect(upper.keyName == "K")
        let lower = try token(
            sr: "http%3a%2f%2f127.0.0.1%3a8080%2f",
            sig: "hZNb2MDbUhWQ3IGgPj7VbSL7npJRHcF7L59RfSFP8PA%3D"
        )
        #expect(lower.isSigned(by: "a2V5"))
        #expect(try !token(sr: "http%3a%2f%2f127.0.0.1%3a8080%2f").isSigned(by: "a2V5"))
    }

    @Test("Fields come in any order, and the scheme's case does not matter")
    func order() throws {
        let text =
            "sharedaccesssignature sig=vgsQuDsSJFDyshp%2BL3dVCzZBrTPOE04KhW8Y2gK7CGk%3D"
            + "&se=1700000000&skn=K&sr=http%3A%2F%2F127.0.0.1%3A8080%2F"
        #expect(SharedAccessToken(authorization: text)?.isSigned(by: "a2V5") == true)
    }

    @Test(
        "An invalid token is refused",
        arguments: [
            nil, "", "SharedAccessSignature", "Bearer sr=a&sig=b&se=1&skn=k",
            "SharedAccessSignature sr=a&sig=b&se=1", "SharedAccessSignature sr=a&sig=b&se=x&skn=k",
            "SharedAccessSignature sr=a&sig=b&se=1&skn=k&se=2",
            "SharedAccessSignature sr=a&sig=%zz&se=1&skn=k",
            "SharedAccessSignature sr=a&sig=b&se=-1&skn=k",
        ]
    )
    func malformed(_ text: String?) {
        #expect(SharedAccessToken(authorization: text) == nil)
    }

    @Test("A token expires at its second")
    func expiry() throws {
        let token = try token()
        #expect(!token.isExpired(at: .init(milliseconds: 1_699_999_999_999)))
        #expect(token.isExpired(at: .init(milliseconds: 1_700_000_000_000)))
    }

    @Test(
        "A token covers its address and paths below, by entire segments, with any port and case",
        arguments: [
            ("http%3A%2F%2F127.0.0.1%3A8080%2F", true), ("http%3A%2F%2F127.0.0.1", true),
            ("sb%3a%2f%2f127.0.0.1%2fSHOP", true), ("https%3a%2f%2f127.0.0.1%2fshop%2f", true),
            ("http%3a%2f%2f127.0.0.1%2fshop%2finstallations%2fa%2525b%2f", true),
            ("http%3a%2f%2f127.0.0.1%2fshop%2finstallations%2fa%2525b%3fx%3dy%2fz", true),
            ("http%3a%2f%2f127.0.0.1%2fshop2", false), ("http%3a%2f%2f127.0.0.1%2fsho", false),
            ("http%3a%2f%2f127.0.0.2%2fshop", false), ("%2fshop", false), ("http%3A%2F%2F", false),
            ("http%3a%2f%2f127.0.0.1%2fshop%2finstallations%2fa%2525b%2fc", false),
        ]
    )
    func coverage(_ resource: String, _ isCovered: Bool) throws {
        let token = try token(sr: resource)
        #expect(
            token.covers(host: "127.0.0.1:443", path: ["shop", "installations", "a%b"])
                == isCovered
        )
    }
}
