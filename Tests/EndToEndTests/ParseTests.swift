import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Parse's REST examples as typed with curl, and the recorded calls of its JavaScript package.
    @Suite(
        "Parse's REST API works under /parse",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(3))
    )
    struct ParseTests {
        @Test("An installation is made, read, subscribed, queried and deleted")
        func installations() async throws {
            let parse = try await ParseBench()
            let token = makeAPNsToken()
            let made = try await parse.rest(
                "POST",
                "/installations",
                ["deviceType": "ios", "deviceToken": .string(token), "channels": [""]]
            )
            #expect(made.status == 201)
            let id = try #require(made.json?["objectId"]?.string)
            #expect(made.json?["createdAt"]?.string != nil)
            #expect(
                made.header("location")
                    == "\(parse.bench.registration)/parse/classes/_Installation/\(id)"
            )
            let proxied = try await http(
                "POST",
                "\(parse.bench.registration)/parse/installations",
                headers: parse.restHeaders.merging(["X-Forwarded-Proto": "https"]) { $1 },
                body: ["deviceType": "ios", "installationId": "behind-a-proxy"]
            )
            let outside = "https" + parse.bench.registration.dropFirst("http".count)
            #expect(
                proxied.header("location")?
                    .hasPrefix(outside + "/parse/classes/_Installation/") == true
            )
            let read = try await parse.rest("GET", "/installations/\(id)")
            #expect(read.status == 200)
            #expect(read.json?["deviceToken"]?.string == token)
            #expect(read.json?["objectId"]?.string == id)

            let changed = try await parse.rest(
                "PUT",
                "/installations/\(id)",
                ["channels": ["", "foo"], "scores": true]
            )
            #expect(changed.status == 200)
            #expect(changed.json?["updatedAt"]?.string != nil)
            #expect(changed.json?.object?.count == 1, "a plain value is not echoed")
            // An unreadable request is refused in Parse's form, too.
            let broken = try await http(
                "GET",
                "\(parse.bench.registration)/parse/installations/%ff?order=%00",
                headers: ["X-Parse-Application-Id": parse.bench.app.id]
            )
            #expect(broken.status == 400 && broken.json?["error"]?.string != nil)
            #expect(broken.json?["code"]?.integer != nil)
            let operated = try await parse.rest(
                "PUT",
                "/classes/_Installation/\(id)",
                [
                    "channels": ["__op": "AddUnique", "objects": ["Giants"]],
                    "badge": ["__op": "Increment", "amount": 5],
                    "injuries": ["__op": "Delete"], "scores": ["__op": "Delete"],
                    "seen": ["__op": "Add", "objects": ["a", "a"]],
                ]
            )
            #expect(operated.json?["channels"] == ["", "foo", "Giants"])
            #expect(operated.json?["badge"] == 5)
            #expect(operated.json?["seen"] == ["a", "a"])
            #expect(operated.json?["scores"] == nil)

            let query = try await parse.master(
                "GET",
                "/installations",
                query: ["where": #"{"channels":"Giants"}"#, "count": "1", "keys": "channels"]
            )
            #expect(query.status == 200)
            #expect(query.json?["count"] == 1)
            #expect(query.json?["results"]?.array?.map { $0["objectId"]?.string } == [id])
            #expect(query.json?["results"]?.array?.first?["deviceToken"] == nil)

            let refused = try await parse.rest("DELETE", "/installations/\(id)")
            #expect(refused.status == 400 && refused.code == 119)
            let gone = try await parse.master("DELETE", "/installations/\(id)")
            #expect(gone.status == 200 && gone.json == [:])
            for (method, body) in [("GET", JSONValue?.none), ("PUT", ["badge": 0])] {
                let answer = try await parse.rest(method, "/installations/\(id)", body)
                #expect(answer.status == 404 && answer.code == 101)
            }
        }

        @Test("Parse's package uses only POST and text/plain")
        func javaScript() async throws {
            let parse = try await ParseBench()
            let caller = UUID().uuidString.lowercased()
            let made = try await parse.package(
                "/classes/_Installation",
                [
                    "deviceType": "web", "installationId": .string(caller),
                    "channels": ["__op": "AddUnique", "objects": ["a"]],
                ],
                installation: caller
            )
            #expect(made.status == 201)
            #expect(made.json?["channels"] == ["a"], "also on a create")
            let id = try #require(made.json?["objectId"]?.string)
            let again = try await parse.package(
                "/classes/_Installation",
                ["deviceType": "web", "badge": 4],
                installation: caller.uppercased()
            )
            #expect(again.status == 200, "the caller's id stands in for a missing one")
            #expect(again.json?["updatedAt"]?.string != nil)
            #expect(again.header("location") == nil)
            let read = try await parse.package(
                "/classes/_Installation/\(id)",
                ["_method": "GET"],
                installation: caller
            )
            #expect(read.json?["installationId"]?.string == caller)
            #expect(read.json?["badge"] == 4)
            #expect(read.json?.object?.keys.contains { $0.hasPrefix("_") } == false)

            let found = try await parse.package(
                "/classes/_Installation",
                [
                    "_method": "GET", "where": ["deviceType": "web", "badge": ["$gte": 4]],
                    "limit": 10, "count": 1, "order": "-createdAt", "excludeKeys": "channels",
                ],
                master: true
            )
            #expect(found.json?["count"] == 1)
            #expect(found.json?["results"]?.array?.first?["objectId"]?.string == id)
            #expect(found.json?["results"]?.array?.first?["channels"] == nil)
            let deleted = try await parse.package(
                "/classes/_Installation/\(id)",
                ["_method": "DELETE"],
                master: true
            )
            #expect(deleted.status == 200 && deleted.json == [:])
            let late = try await parse.package(
                "/classes/_Installation/\(id)",
                ["_method": "PUT", "badge": 1],
                master: true
            )
            #expect(late.status == 404 && late.code == 101, "so that the package posts it anew")
        }

        @Test("A list of new installations without ids is saved as that many, by any caller")
        func savesOfOthers() async throws {
            let parse = try await ParseBench()
            let caller = UUID().uuidString
            var ids: Set<String> = []
            for start in [0, 20] {
                let items = (start..<min(start + 20, 30)).map { number -> JSONValue in
                    [
                        "method": "POST", "path": "/parse/classes/_Installation",
                        "body": [
                            "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                            "number": JSONValue(number),
                        ],
                    ]
                }
                let answer = try await parse.package(
                    "/batch",
                    ["requests": .array(items)],
                    installation: caller
                )
                ids.formUnion(
                    answer.json?.array?.compactMap { $0["success"]?["objectId"]?.string } ?? []
                )
            }
            #expect(ids.count == 30)
            let found = try await parse.master("GET", "/installations", query: ["limit": "100"])
            let stored = found.json?["results"]?.array ?? []
            #expect(stored.count == 30)
            #expect(stored.allSatisfy { $0["installationId"] == nil })
        }

        @Test("One phone stays one installation, by Parse's own rules")
        func oneInstallation() async throws {
            let parse = try await ParseBench()
            func save(_ fields: JSONValue, _ path: String = "") async throws -> HTTPAnswer {
                try await parse.rest(path.isEmpty ? "POST" : "PUT", "/installations" + path, fields)
            }
            func count() async throws -> Int? {
                try await parse.master(
                    "GET",
                    "/installations",
                    query: ["limit": "0", "count": "1"]
                )
                .json?["count"]?.integer
            }
            let token = JSONValue.string(makeAPNsToken())
            let first = try await save([
                "deviceType": "ios", "deviceToken": token, "installationId": "One",
            ])
            #expect(first.status == 201)
            let id = first.json?["objectId"]?.string ?? ""
            // The same device.
            let again = try await save([
                "deviceType": "ios", "deviceToken": token, "installationId": "one", "badge": 2,
            ])
            #expect(again.status == 200 && again.json?["updatedAt"] != nil)
            #expect(try await count() == 1)
            // Its token changes.
            let other = JSONValue.string(makeAPNsToken())
            let moved = try await save(["deviceToken": other, "installationId": "one"], "/\(id)")
            #expect(moved.status == 200)
            // The token is on another device: the first one is deleted.
            let second = try await save([
                "deviceType": "ios", "deviceToken": other, "installationId": "two",
            ])
            #expect(second.status == 201)
            #expect(try await count() == 1)
            let secondID = second.json?["objectId"]?.string ?? ""
            #expect(try await parse.rest("GET", "/installations/\(id)").code == 101)
            // Fields that must not change, and required ones.
            for (fields, path, code): (JSONValue, String, Int) in [
                (["installationId": "three"], "/\(secondID)", 136),
                (["deviceType": "android"], "/\(secondID)", 136),
                (["deviceType": "ios"], "", 135), (["installationId": "four"], "", 135),
            ] {
                let answer = try await save(fields, path)
                #expect(answer.status == 400 && answer.code == code, "\(fields)")
            }
        }

        @Test("Queries follow Parse's operators")
        func queries() async throws {
            let parse = try await ParseBench()
            for number in 0..<12 {
                let fields: JSONValue = [
                    "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                    "n": JSONValue(number), "even": .bool(number % 2 == 0),
                    "tags": .array((0..<(number % 4)).map { .string("t\($0)") }),
                    "names": [.string("pre\(number)"), "suffix"],
                    "place": [
                        "__type": "GeoPoint", "latitude": JSONValue(number * 5), "longitude": 10,
                    ],
                ]
                let answer = try await parse.rest("POST", "/installations", fields)
                #expect(answer.status == 201)
            }
            let cases: [(String, [Int])] = [
                (#"{"n": {"$eq": 3}}"#, [3]),
                (#"{"$nor": [{"even": true}, {"n": {"$lt": 7}}]}"#, [7, 9, 11]),
                (#"{"tags": {"$containedBy": ["t0", "t1"]}}"#, [0, 1, 2, 4, 5, 6, 8, 9, 10]),
                (
                    #"{"names": {"$all": [{"$regex": "^\\Qpre1\\E"}, {"$regex": "^\\Qsuf\\E"}]}}"#,
                    [1, 10, 11]
                ),
                (#"{"place": {"$geoWithin": {"$centerSphere": [[10, 0], 0.2]}}}"#, [0, 1, 2]),
                (
                    #"""
                    {"place": {"$geoWithin": {"$polygon": [
                        {"__type": "GeoPoint", "latitude": 22, "longitude": 5},
                        {"__type": "GeoPoint", "latitude": 22, "longitude": 15},
                        {"__type": "GeoPoint", "latitude": 42, "longitude": 15},
                        {"__type": "GeoPoint", "latitude": 42, "longitude": 5}]}}}
                    """#, [5, 6, 7, 8]
                ),
                (#"{"gone": {"$exists": false}, "n": {"$in": [1, 99]}}"#, [1]),
            ]
            for (condition, expected) in cases {
                let answer = try await parse.master(
                    "GET",
                    "/classes/_Installation",
                    query: ["where": condition, "order": "n"]
                )
                let found = answer.json?["results"]?.array?.compactMap { $0["n"]?.integer }
                #expect(found == expected, "\(condition): \(answer.text.prefix(300))")
            }
            // `findAll` and `each` read all of them like this.
            var seen: [String] = []
            while true {
                let answer = try await parse.package(
                    "/classes/_Installation",
                    [
                        "_method": "GET", "limit": 5, "order": "objectId",
                        "where": ["objectId": ["$gt": .string(seen.last ?? "")]],
                    ],
                    master: true
                )
                let page = try #require(answer.json?["results"]?.array)
                guard !page.isEmpty else { break }
                seen += page.compactMap { $0["objectId"]?.string }
            }
            #expect(seen.count == 12 && Set(seen).count == 12)
            for (name, value, code) in [
                ("wehre", "{}", 102), ("where", "{", 107), ("limit", "many", 102),
                ("where", #"{"n": {"$above": 1}}"#, 102), ("where", #"{"$up": 1}"#, 105),
                ("where", #"{"n": {"$text": {"$search": {"$term": "x"}}}}"#, 102),
                ("explain", "true", 108),
            ] {
                let answer = try await parse.master(
                    "GET",
                    "/installations",
                    query: [name: value]
                )
                #expect(answer.status == 400 && answer.code == code, "\(name)=\(value)")
            }
            let stranger = try await parse.rest("GET", "/installations")
            #expect(stranger.status == 400 && stranger.code == 119)
        }

        @Test(
            "An unknown caller gets 403 without a code, browsers may call, and health needs no key"
        )
        func doors() async throws {
            let parse = try await ParseBench()
            let url = "\(parse.bench.registration)/parse/installations/x"
            for headers in [
                [:], ["X-Parse-Application-Id": parse.bench.app.id],
                ["X-Parse-Application-Id": parse.bench.app.id, "X-Parse-REST-API-Key": "wrong"],
                [
                    "X-Parse-Application-Id": "nobody",
                    "X-Parse-REST-API-Key": parse.bench.app.appKey,
                ],
                [
                    "X-Parse-Application-Id": parse.bench.app.id,
                    "X-Parse-Master-Key": parse.bench.app.appKey,
                ],
            ] {
                let answer = try await http("GET", url, headers: headers)
                #expect(answer.status == 403)
                #expect(answer.json == ["error": "unauthorized"])
                #expect(answer.header("access-control-allow-origin") == "*")
            }
            let preflight = try await http("OPTIONS", url)
            #expect(preflight.status == 200)
            #expect(
                preflight.header("access-control-allow-headers")?
                    .contains("X-Parse-Installation-Id") == true
            )
            let health = try await http(
                "POST",
                "\(parse.bench.registration)/parse/health",
                body: ["_method": "GET"]
            )
            #expect(health.json == ["status": "ok"])
            for (method, path) in [
                ("POST", "/functions/hello"), ("POST", "/login"), ("GET", "/users/me"),
                ("POST", "/jobs/x"), ("GET", "/config"), ("POST", "/files/a.txt"),
                ("GET", "/schemas"), ("GET", "/aggregate/_Installation"), ("GET", "/sessions"),
                ("POST", "/classes/Team"), ("GET", "/classes/Team"), ("GET", "/nothing"),
                ("PUT", "/push"),
            ] {
                let answer = try await parse.master(method, path, method == "GET" ? nil : [:])
                #expect((400..<500).contains(answer.status), "\(path)")
                #expect(answer.code != nil && answer.code != 0, "\(path)")
                #expect(answer.header("access-control-allow-origin") == "*")
            }
            let broken = try await http(
                "POST",
                "\(parse.bench.registration)/parse/push",
                headers: parse.masterHeaders,
                bytes: Array("{".utf8)
            )
            #expect(broken.status == 400 && broken.code == 107)
        }

        @Test("Floods of equivalent keys and of brackets delay no request, with a key or without")
        func floods() async throws {
            let parse = try await ParseBench()
            let keys = JSONObject(HostileText.keys(4000).map { ($0, .null) }).bytes
            let brackets = Array(
                ("{\"a\":[" + String(repeating: "[],", count: 250_000) + "[]]}").utf8
            )
            let clock = ContinuousClock()
            for path in ["/parse/installations", "/1.1/batch", "/1.1/installations"] {
                let isParse = path.hasPrefix("/parse")
                for headers in [
                    ["Content-Type": "text/plain"],
                    isParse ? parse.restHeaders : parse.bench.app.clientHeaders,
                ] {
                    for body in [keys, brackets] {
                        let start = clock.now
                        let answer = try await http(
                            "POST",
                            parse.bench.registration + path,
                            headers: headers,
                            bytes: body
                        )
                        #expect((400..<500).contains(answer.status), "\(path)")
                        // It once took 5 s of a loop; a debug build on a busy machine is slow by
                        // itself.
                        #expect(clock.now - start < .seconds(4), "\(path)")
                        let isUnproved = headers.count == 1
                        #expect(isUnproved == [401, 403].contains(answer.status), "\(path)")
                    }
                }
            }
        }
    }
}
