import HTTPServer
import PushCore
import Testing

@testable import Registration

/// The signatures were made by botocore's own signer.
@Suite("AWS signatures", .timeLimit(.minutes(1)))
struct AWSSignatureTests {
    private static let secret = "s3cret/+="
    private static let pool = "/identitypools/us-east-1%3A00000000-0000-0000-0000-0000000000aa"
    private static let scope = "20261124/eu-west-1/cognito-sync/aws4_request"

    /// A request as botocore signs it.
    struct Signed: Sendable, CustomTestStringConvertible {
        var method = HTTPMethod.get
        var path: String
        var headers: [String: String] = [:]
        var body = ""
        var scope = AWSSignatureTests.scope
        var names = "host;x-amz-date"
        var date = "20261124T130000Z"
        var signature: String

        var testDescription: String { "\(method.rawValue) \(path)" }

        var request: HTTPServerRequest {
            get throws {
                var all: HTTPHeaders = [
                    "Host": "push.example.com", "X-Amz-Date": date,
                    "Authorization": "AWS4-HMAC-SHA256 Credential=bells:master/\(scope), "
                        + "SignedHeaders=\(names), Signature=\(signature)",
                ]
                for (name, value) in headers { all.add(name, value) }
                return try HTTPServerRequest(method, path, headers: all, body: Array(body.utf8))
            }
        }
    }

    static let vectors = [
        Signed(
            path: pool,
            signature: "9091a416d4d2b01111ef03bff68e342fdb66317ca9becd9ccd82e5ad8e8d4851"
        ),
        Signed(
            path: pool + "/identities/us-east-1%3A11/datasets/a%20b~c%28d%29/records"
                + "?maxResults=10&lastSyncCount=0&nextToken=a%2Bb%2F%3D",
            signature: "2e92b5561d00b1b056af58bd0b696d9e4ccb615ce144ae925cd9d23c4d8edd70"
        ),
        Signed(
            method: .post,
            path: pool + "/identities/us-east-1%3A11/datasets/notes",
            headers: ["Content-Type": "application/json", "x-amz-client-context": "  a   b "],
            body: #"{"SyncSessionToken":"x"}"#,
            names: "content-type;host;x-amz-client-context;x-amz-date",
            signature: "d9df13a707b9547d313ef345a6989acbf0dfa178b1f6360a3351d3fc3401f5d6"
        ),
        Signed(
            method: .delete,
            path: pool + "/identities/us-east-1%3A11/datasets/notes/subscriptions/%2F%C3%A9"
                + "?b=2&a=&a=1",
            headers: ["X-Amz-Security-Token": "sess//ion"],
            names: "host;x-amz-date;x-amz-security-token",
            signature: "f740678e26e5070bc51ea2a39881f8e9131a6a349c676e26fd9d8f7ea7cdb7f9"
        ),
    ]

    @Test("A signature of botocore is valid, with its secret alone", arguments: vectors)
    func verifies(_ signed: Signed) throws {
        let signature = try #require(AWSSignature(try signed.request))
        #expect(signature.accessKey == "bells:master")
        #expect(signature.isSigned(by: Self.secret))
        #expect(!signature.isSigned(by: Self.secret + "x"))
        #expect(!signature.isSigned(by: ""))
    }

    @Test("A space sent as + is signed as %20, as AWS' SDK for Java 1 does")
    func blank() throws {
        let path =
            "/identitypools/us-east-1%3A177a950c-2c08-43f0-9983-287270000001/identi"
            + "ties/us-east-1%3Aaaaaaaaa-bbbb-4ccc-8ddd-000000000001/datasets/setting"
            + "s.a_b-c%3Ad/records?lastSyncCount=3&nextToken=next%2B%2F%3D+token&maxR"
            + "esults=10&syncSessionToken=session%2B%2F%3D+token"
        var headers: HTTPHeaders = [:]
        headers.add("Host", "127.0.0.1:28180")
        headers.add("amz-sdk-invocation-id", "f1af183c-74fe-8623-b533-925451525e94")
        headers.add("amz-sdk-request", "ttl=20261125T143627Z;attempt=1;max=4")
        headers.add("amz-sdk-retry", "0/0/500")
        headers.add(
            "Authorization",
            "AWS4-HMAC-SHA256 Credential=shop/20261125/us-east-1/cognito-sync/aws4_"
                + "request, SignedHeaders=amz-sdk-invocation-id;amz-sdk-request;amz-sdk-r"
                + "etry;host;user-agent;x-amz-date, Signature=d46d6a1f20ce96274b30002414e"
                + "fe38551d182f846ea1634cceb93d978b6f21d"
        )
        headers.add(
            "User-Agent",
            "aws-sdk-java/1.12.797 Linux/6.1.0 OpenJDK_64-Bit_Server_VM/17.0.15+6-D"
                + "ebian-1deb12u1 java/17.0.15 vendor/Debian cfg/retry-mode/legacy cfg/au"
                + "th-source#unknown m/N,P"
        )
        headers.add("X-Amz-Date", "20261125T143537Z")
        for (target, isSigned) in [
            (path, true), (path.replacing("+token", with: "%20token"), true),
            (path.replacing("+token", with: "%2Btoken"), false),
        ] {
            let request = try HTTPServerRequest(.get, target, headers: headers)
            let signature = try #require(AWSSignature(request))
            #expect(signature.accessKey == "shop")
            #expect(signature.isSigned(by: "app-key-0001") == isSigned, "\(target)")
        }
    }

    @Test("A signature is invalid if anything changed that was signed", arguments: vectors)
    func changed(_ signed: Signed) throws {
        var others: [Signed] = []
        func other(_ change: (inout Signed) -> Void) {
            var copy = signed
            change(&copy)
            others.append(copy)
        }
        other { $0.path = $0.path.replacing("00aa", with: "00ab") }
        other { $0.path = $0.path.replacing("%3A", with: ":") }
        other { $0.path += ($0.path.contains("?") ? "&" : "?") + "x=1" }
        other { $0.body += " " }
        other { $0.method = $0.method == .get ? .delete : .get }
        other { $0.date = "20261124T130001Z" }
        other { $0.signature = "0" + $0.signature.dropFirst() }
        other { $0.signature = String($0.signature.dropLast()) }
        for name in signed.headers.keys { other { $0.headers[name]? += "x" } }
        for copy in others {
            let signature = AWSSignature(try copy.request)
            #expect(signature?.isSigned(by: Self.secret) != true, "\(copy)")
        }
    }

    @Test("A signature that covers too little, or is for another service, is refused")
    func refused() throws {
        var signed = Self.vectors[0]
        signed.names = "x-amz-date"
        #expect(AWSSignature(try signed.request) == nil)
        signed.names = "host"
        #expect(AWSSignature(try signed.request) == nil)
        signed.names = "host;host;x-amz-date"
        #expect(AWSSignature(try signed.request) == nil)
        signed = Self.vectors[0]
        for scope in [
            "20261124/eu-west-1/sns/aws4_request", "20261124/eu-west-1/cognito-sync/aws5_request",
            "20261123/eu-west-1/cognito-sync/aws4_request", "cognito-sync/aws4_request",
        ] {
            signed.scope = scope
            #expect(AWSSignature(try signed.request) == nil, "\(scope)")
        }
        signed = Self.vectors[0]
        for headers in [
            ["x-amz-security-token": "t"], ["x-amz-content-sha256": "UNSIGNED-PAYLOAD"],
            ["host": "another"], ["authorization": "AWS4-HMAC-SHA256 Credential=a"],
        ] {
            signed.headers = headers
            #expect(AWSSignature(try signed.request) == nil, "\(headers)")
        }
        let query = try HTTPServerRequest(.get, Self.pool + "?X-Amz-Signature=a", headers: [:])
        #expect(AWSSignature.isInQuery(of: query))
    }

    @Test(
        "A header without credentials of its form is not a signature",
        arguments: [
            "", "AWS4-HMAC-SHA256", "Basic YTpi", "AWS4-HMAC-SHA256 Credential=a/b, Signature=c",
            "AWS4-HMAC-SHA256 Credential=\(AWSSignatureTests.scope), SignedHeaders=host, Signature=",
        ]
    )
    func malformed(_ header: String) throws {
        let headers: HTTPHeaders = [
            "Host": "h", "X-Amz-Date": "20261124T130000Z", "Authorization": header,
        ]
        #expect(AWSSignature(try HTTPServerRequest(.get, Self.pool, headers: headers)) == nil)
    }

    @Test("A signature is valid for five minutes, by a clock that is ahead or behind")
    func time() throws {
        let signature = try #require(AWSSignature(try Self.vectors[0].request))
        let made = try #require(Instant(iso8601: "2026-11-24T13:00:00Z"))
        for seconds in [-300, 0, 300] as [Int64] {
            #expect(signature.isCurrent(at: made.adding(milliseconds: seconds * 1000)))
        }
        for milliseconds in [-300_001, 300_001] as [Int64] {
            #expect(!signature.isCurrent(at: made.adding(milliseconds: milliseconds)))
        }
    }
}
