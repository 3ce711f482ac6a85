import JSON
import PushCore
import Testing

struct SecureIDTests {
    @Test("Generated ids are well-formed, of their form, and never the same")
    func made() {
        for form in SecureIDForm.allCases {
            let ids = (0..<1000).map { _ in SecureID.make(form) }
            #expect(ids.allSatisfy(SecureID.isWellFormed))
            #expect(ids.allSatisfy { SecureIDForm(of: $0) == form })
            #expect(Set(ids).count > 990)
        }
        #expect(SecureID.json("12") == 12)
        #expect(SecureID.json("2147483647") == 2_147_483_647)
        let text = "00000000000000000000000000000012"
        #expect(SecureID.json(text) == .string(text))
    }

    @Test(
        "Each id has only one spelling",
        arguments: [
            ("1", true), ("2147483647", true), ("0123456789abcdef0123456789abcdef", true),
            ("0", false), ("2147483648", false), ("99999999999999999999", false), ("01", false),
            ("+1", false), ("-1", false), ("1 ", false), ("", false), ("١", false),
            ("0123456789ABCDEF0123456789abcdef", false), ("0123456789abcdef", false),
            ("0123456789abcdef0123456789abcdeg", false), ("1\0", false),
        ]
    )
    func forms(id: String, isWellFormed: Bool) {
        #expect(SecureID.isWellFormed(id) == isWellFormed)
    }

    @Test(
        "A secret's bounds are in bytes, and a secret does not look like a device's",
        arguments: [
            ("1234567", false), ("12345678", true), ("ééééé", true),
            (String(repeating: "x", count: 1024), true),
            (String(repeating: "x", count: 1025), false), ("cds_12345678", false),
            ("Cds_12345678", true),
        ]
    )
    func secrets(secret: String, isOne: Bool) {
        let problem = IdentitySecret.problem(secret)
        #expect((problem == nil) == isOne)
        #expect(problem?.contains(secret) != true)
    }

    @Test("An identity with a colon cannot have a secret, as Basic could not name it")
    func identities() {
        for identity in ["ann", "ann@shop", "a b", "é"] {
            #expect(IdentitySecret.problem(ofIdentity: identity) == nil)
        }
        for identity in ["", "a:b", "a\0", String(repeating: "x", count: 513)] {
            #expect(IdentitySecret.problem(ofIdentity: identity) != nil)
        }
    }
}
