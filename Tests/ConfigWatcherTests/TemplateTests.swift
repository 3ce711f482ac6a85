import ConfigStorage
import EventLoop
import Gateway
import HTTPServer
import JSON
import PushCore
import RemoteConfig
import Testing

@testable import ConfigWatcher

@Suite("Requests of publishers")
struct TemplateTests {
    @Test(
        "An If-Match header names one version of one template, with or without quotes",
        arguments: [
            ("etag-shop-8", 8), ("\"etag-shop-8\"", 8), ("etag-shop-0", 0), ("etag-shop-8-0", nil),
            ("etag-shop-08", nil), ("etag-shop-+8", nil), ("etag-shop-", nil),
            ("etag-shops-8", nil),
            ("etag-shop-firebase-server-8", nil), ("8", nil), ("", nil), ("\"", nil),
            ("W/\"etag-shop-8\"", nil), ("etag-shop-99999999999999999999", nil),
        ] as [(String, Int?)]
    )
    func etags(text: String, version: Int?) {
        #expect(TemplateAnswer.version(ofETag: text, "shop", .firebase) == version)
    }

    @Test("Each namespace has ETags of its own")
    func etagsOfNamespaces() {
        for namespace in ConfigNamespace.allCases {
            let etag = TemplateAnswer.etag("shop", namespace, 12)
            #expect(TemplateAnswer.version(ofETag: etag, "shop", namespace) == 12)
        }
        #expect(TemplateAnswer.etag("shop", .server, 12) == "etag-shop-firebase-server-12")
    }

    private func page(_ query: String) throws -> VersionPage {
        try VersionPage(
            try QueryParameters(
                try HTTPServerRequest(.get, "/versions?" + query),
                taking: VersionPage.parameters
            )
        )
    }

    @Test("A page token contains the parameters of the request for its page before")
    func pageTokens() throws {
        let first = try page(
            "pageSize=2&endVersionNumber=40&startTime=2026-01-02T03:04:05.678Z"
                + "&endTime=2026-02-01T00:00:00%2B01:00"
        )
        #expect(first.filter.limit == 2 && first.filter.endVersion == 40)
        #expect(first.filter.startTime?.iso8601 == "2026-01-02T03:04:05.678Z")
        #expect(first.filter.endTime?.iso8601 == "2026-01-31T23:00:00.000Z")
        let next = try page("pageSize=3&pageToken=" + first.next(after: 39))
        #expect(next.filter.before == 39 && next.filter.limit == 3)
        #expect(next.filter.endVersion == 40)
        #expect(next.filter.startTime == first.filter.startTime)
        #expect(next.filter.endTime == first.filter.endTime)
        let plain = try page("pageToken=" + (try page("")).next(after: 7))
        #expect(plain.filter.before == 7 && plain.filter.startTime == nil)
    }

    @Test(
        "An invalid list parameter is refused",
        arguments: [
            "pageSize=0", "pageSize=301", "pageSize=x", "pageSize=-1", "endVersionNumber=0",
            "endVersionNumber=1.5", "startTime=yesterday", "endTime=2026-01-01", "pageToken=7",
            "pageToken=x.-.-.-", "pageToken=0.-.-.-", "pageToken=7.x.-.-", "pageToken=7.-.-.-.-",
        ]
    )
    func unusablePages(query: String) {
        let error = #expect(throws: FirebaseError.self) { _ = try page(query) }
        #expect(error?.code == 400 && error?.status == .invalidArgument)
    }

    @Test(
        "A rollback's version is in the body, or else in the query",
        arguments: [
            ("?versionNumber=6", "", 6), ("", #"{"versionNumber":"6"}"#, 6),
            ("", #"{"versionNumber":6}"#, 6), ("?versionNumber=5", #"{"versionNumber":6}"#, 6),
            ("?versionNumber=6", "{}", 6), ("?versionNumber=6", #"{"versionNumber":null}"#, 6),
            ("", #"{"versionNumber":null}"#, nil), ("", "", nil), ("?versionNumber=0", "", nil),
            ("?versionNumber=6", #"{"versionNumber":"x"}"#, nil),
            ("?version_number=6", "", 6), ("", #"{"version_number":6}"#, 6),
            ("", #"{"version_number":"6"}"#, 6), ("", #"{"version":6}"#, nil), ("", "[6]", nil),
        ] as [(String, String, Int?)]
    )
    func rollbackTargets(query: String, body: String, version: Int?) throws {
        let request = try HTTPServerRequest(.post, "/rollback" + query, body: Array(body.utf8))
        let parameters = try QueryParameters(request, taking: ["versionNumber"])
        guard let version else {
            #expect(throws: FirebaseError.self) {
                try FirebaseSurface.rollbackTarget(request, parameters)
            }
            return
        }
        #expect(try FirebaseSurface.rollbackTarget(request, parameters) == version)
    }

    @Test(
        "A parameter is accepted in both spellings, and an unknown one is refused in Google's form"
    )
    func spellings() throws {
        let page = try page(
            "page_size=2&end_version_number=40&start_time=2026-01-02T03:04:05.123456789Z"
        )
        #expect(page.filter.limit == 2 && page.filter.endVersion == 40)
        #expect(page.filter.startTime?.iso8601 == "2026-01-02T03:04:05.123Z")
        // Google's platform accepts these everywhere.
        _ = try self.page("key=k&alt=json&prettyPrint=false&%24.xgafv=2&fields=f&quotaUser=u")
        for name in ["pagesize", "page-size", "PageSize", "limit", "x%22%0Ay"] {
            let error = #expect(throws: FirebaseError.self) { _ = try self.page("\(name)=2") }
            let response = try JSONValue.parse(error?.response.body ?? [])["error"]
            #expect(response?["code"] == 400 && response?["status"] == "INVALID_ARGUMENT")
            let shown = name == "x%22%0Ay" ? "x\" y" : name
            let message =
                "Invalid JSON payload received. Unknown name \"\(shown)\": Cannot bind query "
                + "parameter. Field '\(shown)' could not be found in request message."
            #expect(response?["message"]?.string == message)
            #expect(
                response?["details"]?[0]?["fieldViolations"]?[0]?["description"]?.string == message
            )
        }
    }

    @Test("The reason why a row is not served is that of the parser")
    func refusedRows() async throws {
        let loop = try EventLoop(name: "rows")
        func reason(_ template: String?, _ namespace: String = "firebase") async -> String? {
            let verdict = await ConfigRowChecker.verdict(
                on: template,
                of: namespace,
                described: "",
                on: loop
            )
            guard case .refused(let reason) = verdict else { return nil }
            return reason
        }
        #expect(await reason("{}") == nil)
        #expect(await reason("{}", "other") == "the namespace is unknown")
        #expect(await reason(nil) == "the template is larger than 8388608 bytes")
        #expect(await reason(#"{"x":1}"#) == "x is not known")
        // Postgres accepts both.
        let deep = String(repeating: "[", count: 70) + String(repeating: "]", count: 70)
        #expect(await reason(deep)?.hasPrefix("the template cannot be read: ") == true)
        let many = "[" + String(repeating: "0,", count: 500_001) + "0]"
        #expect(await reason(many)?.hasPrefix("the template cannot be read: ") == true)
        await loop.stop()
    }

    @Test("Errors have Google's form, and a refusal does not reveal whether a project exists")
    func errors() throws {
        let mismatch = FirebaseError.versionMismatch(expected: "6", found: 8, project: "shop")
        #expect(
            String(decoding: mismatch.response.body, as: UTF8.self)
                == #"{"error":{"code":400,"message":"[VERSION_MISMATCH]: Expected version 6, "#
                + #"found 8 for project: shop","status":"FAILED_PRECONDITION"}}"#
        )
        for refusal in [Refusal.unauthorized, .signatureTooOld, .masterKeyNeeded(for: "this")] {
            #expect(FirebaseError(refusal) == .permissionDenied)
        }
        let limited = FirebaseError(.tooManyRequests(retryAfterSeconds: 7)).response
        #expect(limited.status == 429 && limited.headers["retry-after"] == "7")
        let away = FirebaseError(.unavailable).response
        #expect(away.status == 503 && away.headers["retry-after"] == "1")
        let large = FirebaseError(.problem(HTTPProblem(status: 413, detail: "too much")))
        #expect(large.code == 413 && large.status == .invalidArgument)
    }
}
