import HTTPServer
import Testing

/// Raw bytes from a peer, and the statuses of the responses, in order, before the connection ends.
/// A second response must not occur: it would mean that bytes of a refused request were read as a
/// request of their own.
struct RawRequest: Sendable {
    let name: String
    let bytes: [UInt8]
    let statuses: [Int]
    let lastBody: String?

    init(_ name: String, _ text: String, _ statuses: [Int], body: String? = nil) {
        self.init(name, Array(text.utf8), statuses, body: body)
    }

    init(_ name: String, _ bytes: [UInt8], _ statuses: [Int], body: String? = nil) {
        self.name = name
        self.bytes = bytes
        self.statuses = statuses
        lastBody = body
    }
}

private let smuggled = "GET /hello/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

private func get(_ target: String, _ lines: String = "") -> String {
    "GET \(target) HTTP/1.1\r\nHost: a\r\n\(lines)\r\n"
}

private func post(_ lines: String, _ body: String) -> String {
    "POST /echo HTTP/1.1\r\nHost: a\r\n\(lines)\r\n\(body)"
}

private func chunked(_ body: String) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

private let goodRequests = [
    RawRequest("plain", get("/"), [200], body: "GET /"),
    RawRequest("an empty line first", "\r\n" + get("/"), [200]),
    RawRequest(
        "pipelined",
        get("/slow") + get("/hello/1") + get("/hello/2"),
        [200, 200, 200],
        body: "hello 2"
    ),
    RawRequest("close, then more", get("/", "Connection: close\r\n") + smuggled, [200]),
    RawRequest("1.0", "GET / HTTP/1.0\r\n\r\n" + smuggled, [200]),
    RawRequest(
        "1.0, kept alive",
        "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n" + get("/"),
        [200, 200]
    ),
    RawRequest("absolute form", get("http://b.example:80/hello/x?y"), [200], body: "hello x"),
    RawRequest("absolute form without a path", get("HTTP://b?y=1"), [200], body: "GET /?y=1"),
    RawRequest("asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", [404]),
    RawRequest("length", post("Content-Length: 5\r\n", "hello"), [200], body: "hello"),
    RawRequest(
        "length with zeros",
        post("content-length: 005\r\n", "hello"),
        [200],
        body: "hello"
    ),
    RawRequest(
        "chunks",
        chunked("5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n"),
        [200],
        body: "hello0123456789"
    ),
    RawRequest(
        "chunk extension",
        chunked("5;a=\"b\"\r\nhello\r\n0;x\r\n\r\n"),
        [200],
        body: "hello"
    ),
    RawRequest(
        "trailers are dropped",
        chunked("1\r\na\r\n0\r\nHost: b\r\nX: y\r\n\r\n") + get("/"),
        [200, 200]
    ),
    RawRequest("coding's case", post("Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n"), [200]),
    RawRequest("blanks around a value", get("/", "X: \t y \t\r\nConnection:\t close\r\n"), [200]),
    RawRequest("empty value", get("/", "X:\r\n"), [200]),
    RawRequest(
        "opaque bytes",
        Array("GET / HTTP/1.1\r\nHost: a\r\nX: ".utf8) + [0xFF, 0xE9]
            + Array("\r\n\r\n".utf8),
        [200]
    ),
    RawRequest(
        "expectation with its body",
        post(
            "Expect: 100-continue\r\nContent-Length: 2\r\n",
            "ok"
        ),
        [200],
        body: "ok"
    ),
    RawRequest("IPv6 host", "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", [200]),
]

private let hostileRequests = [
    RawRequest("two empty lines first", "\r\n\r\n" + get("/"), [400]),
    RawRequest("line feeds alone", "GET / HTTP/1.1\nHost: a\n\n", [400]),
    RawRequest("line feed alone in the head", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", [400]),
    RawRequest("carriage return alone", get("/", "X: a\rY: b\r\n"), [400]),
    RawRequest("NUL in a value", get("/", "X: a\0b\r\n"), [400]),
    RawRequest("NUL in a name", get("/", "X\0: b\r\n"), [400]),
    RawRequest("delete character", get("/", "X: a\u{7f}\r\n"), [400]),
    RawRequest("blank before the colon", post("Content-Length : 5\r\n", "hello"), [400]),
    RawRequest("folded line", get("/", "X: a\r\n b\r\n"), [400]),
    RawRequest("folded first line", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", [400]),
    RawRequest(
        "folded into a framing field",
        post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"),
        [400]
    ),
    RawRequest("no name", get("/", ": x\r\n"), [400]),
    RawRequest("no colon", get("/", "nonsense\r\n"), [400]),
    RawRequest("name with a slash", get("/", "a/b: c\r\n"), [400]),
    RawRequest("no host", "GET / HTTP/1.1\r\n\r\n", [400]),
    RawRequest("two hosts", get("/", "Host: a\r\n"), [400]),
    RawRequest("empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", [400]),
    RawRequest("host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", [400]),
    RawRequest("host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", [400]),
    RawRequest("host list", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", [400]),
    RawRequest("port that is none", "GET / HTTP/1.1\r\nHost: a:8x\r\n\r\n", [400]),
    RawRequest("length twice", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), [400]),
    RawRequest("two lengths", post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), [400]),
    RawRequest("length list", post("Content-Length: 5, 5\r\n", "hello"), [400]),
    RawRequest("signed length", post("Content-Length: +5\r\n", "hello"), [400]),
    RawRequest("negative length", post("Content-Length: -1\r\n", smuggled), [400]),
    RawRequest("hexadecimal length", post("Content-Length: 0x5\r\n", "hello"), [400]),
    RawRequest("length with a blank", post("Content-Length: 5 5\r\n", "hello"), [400]),
    RawRequest("empty length", post("Content-Length:\r\n", smuggled), [400]),
    RawRequest(
        "length beyond numbers",
        post("Content-Length: 99999999999999999999999999\r\n", smuggled),
        [413]
    ),
    RawRequest("length beyond the limit", post("Content-Length: 1001\r\n", smuggled), [413]),
    RawRequest(
        "length and chunks",
        post(
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n" + smuggled
        ),
        [400]
    ),
    RawRequest(
        "chunks and length",
        post(
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "0\r\n\r\n" + smuggled
        ),
        [400]
    ),
    RawRequest(
        "codings twice",
        post(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n" + smuggled
        ),
        [501]
    ),
    RawRequest("coding list", post("Transfer-Encoding: gzip, chunked\r\n", smuggled), [501]),
    RawRequest("chunked not last", post("Transfer-Encoding: chunked, gzip\r\n", smuggled), [501]),
    RawRequest("identity", post("Transfer-Encoding: identity\r\n", smuggled), [501]),
    RawRequest("coding with a suffix", post("Transfer-Encoding: chunkedx\r\n", smuggled), [501]),
    RawRequest(
        "coding with a vertical tab",
        post(
            "Transfer-Encoding: \u{b}chunked\r\n",
            smuggled
        ),
        [400]
    ),
    RawRequest("empty coding", post("Transfer-Encoding:\r\n", smuggled), [501]),
    RawRequest(
        "chunks in 1.0",
        "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
        [400]
    ),
    RawRequest("chunk without a size", chunked("\r\nhello\r\n0\r\n\r\n"), [400]),
    RawRequest("chunk size with 0x", chunked("0x5\r\nhello\r\n0\r\n\r\n"), [400]),
    RawRequest("negative chunk", chunked("-5\r\nhello\r\n0\r\n\r\n"), [400]),
    RawRequest("chunk size beyond numbers", chunked("10000000000000005\r\nhello\r\n"), [400]),
    RawRequest("blank after a chunk size", chunked("5 \r\nhello\r\n0\r\n\r\n"), [400]),
    RawRequest("chunk longer than its size", chunked("5\r\nhello!\r\n0\r\n\r\n"), [400]),
    RawRequest("chunks without their CRLF", chunked("5\r\nhello0\r\n\r\n" + smuggled), [400]),
    RawRequest("chunk size ended by a line feed", chunked("5\nhello\r\n0\r\n\r\n"), [400]),
    RawRequest("control character in an extension", chunked("5;\u{1}\r\nhello\r\n"), [400]),
    RawRequest(
        "long extension",
        chunked("5;" + String(repeating: "x", count: 300) + "\r\nhello\r\n"),
        [400]
    ),
    RawRequest("chunk beyond the limit", chunked("3e9\r\n" + smuggled), [413]),
    RawRequest("trailer that is no field", chunked("0\r\nnonsense\r\n\r\n" + smuggled), [400]),
    RawRequest("unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", [501]),
    RawRequest("method's case", "get / HTTP/1.1\r\nHost: a\r\n\r\n", [501]),
    RawRequest("tunnel", "CONNECT b:80 HTTP/1.1\r\nHost: a\r\n\r\n", [501]),
    RawRequest("method that is no token", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    RawRequest("version 2", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", [505]),
    RawRequest("version 1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", [505]),
    RawRequest("version's case", "GET / http/1.1\r\nHost: a\r\n\r\n", [400]),
    RawRequest("long version", "GET / HTTP/1.11\r\nHost: a\r\n\r\n", [400]),
    RawRequest("no version", "GET /\r\n\r\n", [400]),
    RawRequest("two blanks", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    RawRequest("tabs", "GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    RawRequest("blank at the end", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", [400]),
    RawRequest("blank at the start", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    RawRequest("blank in the target", get("/a b"), [400]),
    RawRequest("fragment", get("/#x"), [400]),
    RawRequest("target beyond ASCII", get("/é"), [400]),
    RawRequest("no slash", get("hello"), [400]),
    RawRequest("asterisk for GET", get("*"), [400]),
    RawRequest("other scheme", get("ftp://a/"), [400]),
    RawRequest("user in the target", get("http://u@a/"), [400]),
    RawRequest("escaped NUL", get("/hello/%00"), [400]),
    RawRequest("broken escape", get("/hello/%zz"), [400]),
    RawRequest("half an escape", get("/hello/%4"), [400]),
    RawRequest("escapes that are not UTF-8", get("/hello/%FF"), [400]),
    RawRequest("long target", get("/" + String(repeating: "a", count: 2100)), [414]),
    RawRequest(
        "endless target",
        "GET /" + String(repeating: "a", count: 3000),
        [414]
    ),
    RawRequest(
        "large head",
        get("/", "X: " + String(repeating: "a", count: 5000) + "\r\n"),
        [431]
    ),
    RawRequest(
        "endless head line",
        "GET / HTTP/1.1\r\nX: " + String(repeating: "a", count: 5000),
        [431]
    ),
    RawRequest("many fields", get("/", String(repeating: "X: y\r\n", count: 60)), [431]),
    RawRequest("other expectation", get("/", "Expect: 200-ok\r\n"), [417]),
    RawRequest("TLS on the plain port", [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3], [400]),
    RawRequest("half a head", "GET / HTTP/1.1\r\nHost: a\r\n", []),
    RawRequest("half a body", post("Content-Length: 5\r\n", "hell"), []),
    RawRequest("nothing", "", []),
]

@Suite(.timeLimit(.minutes(2)))
struct HostileRequestTests {
    enum Kind: CaseIterable {
        case good, hostile

        var requests: [RawRequest] {
            switch self {
            case .good: goodRequests
            case .hostile: hostileRequests
            }
        }
    }

    /// Each is sent on a connection of its own, in one piece.
    @Test(arguments: Kind.allCases)
    func requestsAreAnsweredOrRefused(_ kind: Kind) async throws {
        try await withServer(configure: setSmallLimits) { server in
            for request in kind.requests {
                let found = try replies(try await server.exchange(request.bytes))
                #expect(
                    found.map(\.status) == request.statuses,
                    "\(request.name): \(found.map(\.body))"
                )
                if let body = request.lastBody {
                    #expect(found.last?.body == body, "\(request.name)")
                }
            }
        }
    }

    /// The bytes have the same meaning however the network splits them.
    @Test(arguments: Kind.allCases)
    func piecesMeanTheSame(_ kind: Kind) async throws {
        try await withServer(configure: setSmallLimits) { server in
            for request in kind.requests where request.bytes.count < 300 {
                let wire = try Wire(port: server.port)
                defer { wire.close() }
                for byte in request.bytes {
                    // After a refusal the server may have closed before the last byte.
                    guard (try? await wire.send([byte])) != nil else { break }
                }
                wire.endOutput()
                let found = try replies(try await wire.receiveAll())
                // A request that comes in pieces gets 100 Continue.
                let statuses = found.map(\.status).filter { $0 != 100 }
                #expect(statuses == request.statuses, "\(request.name)")
            }
        }
    }

    @Test func thereAreEnoughOfThem() {
        #expect(goodRequests.count + hostileRequests.count >= 100)
    }

    private func setSmallLimits(_ configuration: inout HTTPServerConfiguration) {
        configuration.maximumBodyBytes = 1000
        configuration.maximumHeadBytes = 4096
        configuration.maximumTargetBytes = 2048
        configuration.maximumHeaderCount = 50
    }
}
