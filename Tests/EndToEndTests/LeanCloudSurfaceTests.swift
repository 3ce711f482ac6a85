import Foundation
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests {
    /// LeanCloud's API 1.1 as its clients call it, over the built executable.
    @Suite("LeanCloud's surface", .runningStack, .serialized, .timeLimit(.minutes(4)))
    struct LeanCloudSurfaceTests {
        /// One app, and calls to the surface in its name.
        struct API {
            let bench: Bench

            init() async throws { bench = try await Bench() }

            func call(
                _ method: String,
                _ path: String,
                _ query: [String: String] = [:],
                body: JSONValue? = nil,
                asClient: Bool = false,
                headers extra: [String: String] = [:]
            ) async throws -> HTTPAnswer {
                var allowed = CharacterSet.urlQueryAllowed
                allowed.remove(charactersIn: "+&=?#")
                let text = query.map { name, value in
                    let value = value.addingPercentEncoding(withAllowedCharacters: allowed) ?? ""
                    return "\(name)=\(value)"
                }.joined(separator: "&")
                return try await http(
                    method,
                    "\(bench.registration)/1.1/\(path)\(text.isEmpty ? "" : "?\(text)")",
                    headers: (asClient ? bench.app.clientHeaders : bench.app.masterHeaders)
                        .merging(extra) { _, theirs in theirs },
                    body: body
                )
            }

            func create(_ path: String, _ body: JSONValue) async throws -> String {
                let answer = try await call("POST", path, body: body)
                guard answer.status == 201, let id = answer.json?["objectId"]?.string else {
                    throw TestFailure("POST \(path): \(answer.status) \(answer.text)")
                }
                return id
            }

            /// Makes six installations: badge 0 to 5, every other of them in channel `even`.
            func fill() async throws -> [String] {
                var ids: [String] = []
                for number in 0..<6 {
                    ids.append(
                        try await create(
                            "classes/_Installation",
                            [
                                "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                                "badge": JSONValue(number), "profile": ["city": "c\(number)"],
                                "channels": number % 2 == 0 ? ["even", "all"] : ["all"],
                            ]
                        )
                    )
                }
                return ids
            }
        }

        func expect(
            _ answer: HTTPAnswer,
            _ status: Int,
            code: Int? = nil,
            naming word: String = "",
            at location: SourceLocation = #_sourceLocation
        ) {
            #expect(answer.status == status, "\(answer.text)", sourceLocation: location)
            #expect(
                answer.header("content-type")?.hasPrefix("application/json") == true,
                sourceLocation: location
            )
            #expect(
                answer.header("access-control-allow-origin") == "*",
                sourceLocation: location
            )
            guard let code else {
                #expect(answer.json?["error"] == nil, sourceLocation: location)
                return
            }
            #expect(
                answer.json?["code"]?.integer == code,
                "\(answer.text)",
                sourceLocation: location
            )
            #expect(
                (answer.json?["error"]?.string).map { word.isEmpty || $0.contains(word) } == true,
                "\(answer.text)",
                sourceLocation: location
            )
        }

        func badges(_ answer: HTTPAnswer) -> [Int?] {
            (answer.json?["results"]?.array ?? []).map { $0["badge"]?.integer }
        }

        @Test("An unknown route is refused in LeanCloud's form, too, and a batch may be large")
        func serverErrors() async throws {
            let api = try await API()
            let (long, many) = (
                String(repeating: "a", count: 20_000), String(repeating: "a", count: 80_000)
            )
            let installations = "\(api.bench.registration)/1.1/installations"
            expect(try await http("GET", "\(installations)?where=\(long)"), 414, code: 1)
            expect(
                try await http("GET", installations, headers: ["X-Long": many]),
                431,
                code: 1
            )
            let headers = api.bench.app.masterHeaders
            let body = [UInt8](repeating: 0x20, count: (1 << 20) + 1)
            expect(
                try await http("POST", installations, headers: headers, bytes: body),
                413,
                code: 116
            )
            let item: JSONValue = [
                "method": "POST", "path": "/1.1/users", "body": ["note": .string(long)],
            ]
            let batch = try await api.call(
                "POST",
                "batch",
                body: ["requests": .array([JSONValue](repeating: item, count: 60))]
            )
            expect(batch, 200)
            #expect(batch.json?.array?.allSatisfy { $0["success"] != nil } == true)
        }

        @Test(
            "A batch runs its items in order, each with its own success or error"
        )
        func batch() async throws {
            let api = try await API()
            let ids = try await api.fill()
            let answer = try await api.call(
                "POST",
                "batch",
                body: [
                    "requests": [
                        ["method": "POST", "path": "/1.1/users", "body": ["username": "kid"]],
                        [
                            "method": "PUT", "path": "/1.1/classes/_Installation/\(ids[0])",
                            "body": ["badge": ["__op": "Increment"]],
                            "params": ["fetchWhenSave": true],
                        ],
                        [
                            "method": "GET", "path": "/1.1/classes/_Installation",
                            "params": [
                                "where": ["channels": "even"], "order": "badge", "limit": 2,
                            ],
                        ],
                        ["method": "PUT", "path": "/1.1/installations/none", "body": [:]],
                        ["method": "GET", "path": "/1.1/classes/_Installation/\(ids[1])"],
                        [
                            "method": "DELETE",
                            "path": "/1.1/classes/_Installation/\(ids[4]),\(ids[5])", "body": [:],
                        ],
                        ["method": "POST", "path": "/1.1/batch", "body": ["requests": []]],
                        ["method": "GET", "path": "/1.1/classes/Post"], ["method": "GET"],
                    ]
                ]
            )
            expect(answer, 200)
            let items = try #require(answer.json?.array)
            #expect(items.count == 9)
            #expect(items[0]["success"]?["objectId"]?.string != nil)
            #expect(items[1]["success"]?["badge"] == 1)
            #expect(items[2]["success"]?["results"]?.array?.map { $0["badge"] } == [1, 2])
            #expect(items[3]["error"]?["code"] == 101)
            #expect(items[4]["success"]?["objectId"]?.string == ids[1])
            #expect(items[5]["success"] == [:])
            #expect(items[6]["error"]?["code"] == 107)
            #expect(items[7]["error"]?["code"] == 101)
            #expect(items[8]["error"]?["code"] == 107)
            expect(try await api.call("POST", "batch", body: ["requests": 1]), 400, code: 107)
            let many = [JSONValue](repeating: ["method": "GET", "path": "/1.1/date"], count: 1001)
            expect(
                try await api.call("POST", "batch", body: ["requests": .array(many)]),
                400,
                code: 107
            )
            // An operation that a client may not do alone is refused in a batch, too.
            let client = try await api.call(
                "POST",
                "batch",
                body: ["requests": [["method": "GET", "path": "/1.1/installations"]]],
                asClient: true
            )
            #expect(client.json?[0]?["error"]?["code"] == 119)
            let saved = try await api.call(
                "POST",
                "batch/save",
                body: [
                    "requests": [
                        [
                            "method": "POST", "path": "/1.1/classes/_Installation",
                            "body": ["__internalId": "n1", "deviceType": "android"],
                        ],
                        [
                            "method": "PUT", "path": "/1.1/classes/_Installation/\(ids[0])",
                            "body": ["badge": 9],
                        ],
                    ]
                ]
            )
            expect(saved, 200)
            #expect(saved.json?["n1"]?["objectId"]?.string != nil)
            #expect(saved.json?[ids[0]]?["updatedAt"] != nil)
        }

        @Test("A browser's form, old headers, a null body and a bare ? keep their meaning")
        func oldWays() async throws {
            let api = try await API()
            let ids = try await api.fill()
            let app = api.bench.app
            let url = "\(api.bench.registration)/1.1"
            func form(_ path: String, _ body: JSONValue) async throws -> HTTPAnswer {
                try await http(
                    "POST",
                    "\(url)/\(path)",
                    headers: ["Content-Type": "text/plain;charset=UTF-8"],
                    bytes: body.bytes
                )
            }
            let found = try await form(
                "installations",
                [
                    "_method": "GET", "_ApplicationId": .string(app.id),
                    "_ApplicationKey": .string("\(app.masterKey),master"),
                    "where": ["badge": ["$lt": 2]], "order": "badge",
                ]
            )
            expect(found, 200)
            #expect(badges(found) == [0, 1])
            let changed = try await form(
                "installations/\(ids[0])",
                [
                    "_method": "PUT", "_ApplicationId": .string(app.id),
                    "_ApplicationKey": .string(app.appKey), "badge": 7,
                ]
            )
            expect(changed, 200)
            let created = try await form(
                "installations",
                [
                    "_ApplicationId": .string(app.id), "_ApplicationKey": .string(app.appKey),
                    "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                ]
            )
            expect(created, 201)
            let stranger = try await form(
                "installations",
                ["_ApplicationId": .string(app.id), "_ApplicationKey": "wrong"]
            )
            expect(stranger, 401, code: 401)
            let old = try await http(
                "GET",
                "\(url)/installations/\(ids[0])?",
                headers: [
                    "X-AVOSCloud-Application-Id": app.id,
                    "X-AVOSCloud-Application-Key": app.appKey, "X-LC-Session": "whatever",
                    "Content-Type": "application/json;charset=UTF-8",
                ],
                bytes: Array("null".utf8)
            )
            expect(old, 200)
            #expect(old.json?["badge"] == 7)
            let asked = try await http("OPTIONS", "\(url)/classes/_Installation")
            #expect(asked.status == 200)
            #expect(asked.header("access-control-allow-headers")?.contains("X-LC-Sign") == true)
        }

        @Test("Unsupported parts of the API are refused by name")
        func notPart() async throws {
            let api = try await API()
            for (method, path, status, code, word) in [
                ("GET", "classes/Post", 404, 101, "Post"),
                ("POST", "classes/Post", 404, 101, "Post"),
                ("GET", "classes/Post/x", 404, 101, "Post"),
                ("POST", "functions/hello", 400, 1, "functions"),
                ("POST", "login", 400, 1, "login"), ("GET", "roles", 400, 1, "roles"),
                ("POST", "files/a.png", 400, 1, "files"),
                ("PUT", "classes/_Notification/x", 405, 1, "method"),
                ("GET", "nonsense", 404, 1, "nothing"),
            ] {
                let body: JSONValue? = method == "GET" ? nil : [:]
                expect(
                    try await api.call(method, path, body: body),
                    status,
                    code: code,
                    naming: word
                )
            }
            let date = try await api.call("GET", "date")
            #expect(date.json?["__type"] == "Date")
        }
    }
}
