import Compression
import Gateway
import HTTPServer
import JSON
import PushCore
import Support
import Testing

@testable import Registration

@Suite("Hostile strings", .timeLimit(.minutes(1)), .serialized)
struct HostileTextTests {
    private let nfc = "caf\u{e9}"
    private let nfd = "cafe\u{301}"

    @Test("A save of a thousand fields with equivalent names costs as much as any thousand")
    func equivalentFields() {
        func body(_ keys: [String]) -> JSONObject { JSONObject(keys.map { ($0, 1) }) }
        let (dear, cheap) = (
            body(HostileText.keys(1000)), body(HostileText.benignKeys(1000))
        )
        let ratio = HostileText.costRatio(
            of: { _ = try? FieldChanges(dear, to: [:]) },
            to: { _ = try? FieldChanges(cheap, to: [:]) }
        )
        #expect(ratio < 20)
    }

    @Test("AddUnique and Remove treat equivalent strings as two, in short lists and long ones")
    func operations() throws {
        for others in [0, 40] {
            let more = (0..<others).map { JSONValue.string("\($0)") }
            let texts = more + [.string(nfd), .string(nfd)]
            let added = try FieldChanges(
                ["list": ["__op": "AddUnique", "objects": .array(texts)]],
                to: ["list": [.string(nfc)]]
            ).object["list"]?.array?.compactMap(\.string)
            #expect(added?.first?.utf8.count == 5)
            #expect(added?.count { $0.utf8.count == 6 } == 1)
            #expect(added?.count == others + 2)
            let removed = try FieldChanges(
                ["list": ["__op": "Remove", "objects": .array(texts)]],
                to: ["list": [.string(nfc), .string(nfd)]]
            ).object["list"]?.array
            #expect(removed == [.string(nfc)])
        }
    }

    @Test("More values than a body may have are refused with the surface's own error")
    func values() throws {
        let many = Array(("[" + String(repeating: "[],", count: BodyLimits.values) + "[]]").utf8)
        #expect { try LeanCloudCall.parse(many, forMaster: true) } throws: { error in
            (error as? ObjectError)?.code == 107
        }
        // A caller with only the app key may have a tenth of that.
        let few = Array(
            ("[" + String(repeating: "[],", count: BodyLimits.valuesOfClients) + "[]]").utf8
        )
        #expect(throws: LeanCloudError.self) { try LeanCloudCall.parse(few, forMaster: false) }
        #expect(throws: Never.self) { try LeanCloudCall.parse(few, forMaster: true) }
        let call = try HTTPServerRequest(
            .post,
            "/parse/push",
            headers: ["X-Parse-Application-Id": "shop", "X-Parse-Master-Key": "k"],
            body: many
        )
        #expect { try ParseCall(call, forMaster: true) } throws: { error in
            (error as? ObjectError)?.code == 107
        }
    }

    @Test(
        "Headers with the caller leave the body unread, and a form is searched only for the caller"
    )
    func proofBeforeWork() throws {
        let broken = Array("{".utf8)
        let named = try HTTPServerRequest(
            .post,
            "/parse/push",
            headers: ["X-Parse-Application-Id": "shop", "X-Parse-Master-Key": "k"],
            body: broken
        )
        var searches = 0
        let credential = ParseCredential(named) { _ in searches += 1 }
        #expect(credential?.masterKey == "k" && searches == 0)
        let unnamed = try HTTPServerRequest(.post, "/parse/push", body: broken)
        #expect(ParseCredential(unnamed) { _ in searches += 1 } == nil)
        #expect(searches == 1)
        let leanCloud = try HTTPServerRequest(
            .post,
            "/1.1/push",
            headers: ["X-LC-Id": "shop", "X-LC-Key": "k", "Content-Type": "text/plain"],
            body: broken
        )
        #expect(try LeanCloudRequest.credential(of: leanCloud) { _ in searches += 1 }.app == "shop")
        #expect(searches == 1)
    }
    @Test("An unauthenticated compressed form is inflated to a bound, and not after many failures")
    func compressedForms() throws {
        func form(_ extra: Int) throws -> HTTPServerRequest {
            let body: JSONValue = [
                "filler": .string(String(repeating: "x", count: extra)),
                "_ApplicationId": "shop", "_JavaScriptKey": "k", "_ApplicationKey": "k",
            ]
            return try HTTPServerRequest(
                .post,
                "/parse/push",
                headers: ["Content-Encoding": "gzip", "Content-Type": "text/plain"],
                body: Compression.gzip.compress(body.bytes)
            )
        }
        let bound = BodyCredentials.maximumInflatedBytes
        var told: [Int] = []
        let (small, large) = (try form(1000), try form(bound))
        #expect(large.body.count < 1000)
        #expect(ParseCredential(small) { told.append($0) }?.clientKey == "k")
        #expect(try LeanCloudRequest.credential(of: small) { told.append($0) }.app == "shop")
        #expect(ParseCredential(large) { told.append($0) } == nil)
        #expect(throws: Refusal.unauthorized) {
            try LeanCloudRequest.credential(of: large) { told.append($0) }
        }
        // The bound does not depend on how few bytes are sent.
        #expect(told == [bound, bound, bound, bound])
    }
}
