import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("One installation for each phone", .runningStack, .serialized, .timeLimit(.minutes(3)))
    struct OnePhoneTests {
        @Test(
            "200 concurrent saves of each of three tokens at two replicas give one object id each"
        )
        func savesAtOnce() async throws {
            let bench = try await Bench()
            let second = try await bench.stack.start("carillon-registration")
            let replicas = [bench.registration, second.url]
            for _ in 0..<3 {
                let token = makeAPNsToken()
                let answers = try await withThrowingTaskGroup(of: HTTPAnswer.self) { group in
                    for number in 0..<200 {
                        group.addTask {
                            try await http(
                                "POST",
                                "\(replicas[number % 2])/1.1/installations",
                                headers: bench.app.clientHeaders,
                                body: [
                                    "deviceType": "ios", "deviceToken": .string(token),
                                    "badge": JSONValue(number),
                                ]
                            )
                        }
                    }
                    return try await group.reduce(into: [HTTPAnswer]()) { $0.append($1) }
                }
                let ids = Set(answers.map { $0.json?["objectId"]?.string })
                #expect(ids.count == 1)
                #expect(answers.filter { $0.status == 201 }.count == 1)
                #expect(answers.filter { $0.status == 200 }.count == 199)
                let rows = try await bench.stack.database.query(
                    """
                    select object_id from installations
                    where app = '\(bench.app.id)' and token = '\(token)'
                    """
                )
                #expect(rows == ids.compactMap(\.self))
            }
            #expect(await second.process.stop() == .status(0))
        }

        @Test("Phones that exchange their tokens all get a response, and no token is on two rows")
        func tokensGoRound() async throws {
            let bench = try await Bench()
            let tokens = (0..<6).map { _ in makeAPNsToken() }
            let statuses = try await withThrowingTaskGroup(of: Int.self) { group in
                for number in 0..<180 {
                    group.addTask {
                        try await http(
                            "POST",
                            "\(bench.registration)/1.1/installations",
                            headers: bench.app.clientHeaders,
                            body: [
                                "deviceType": "ios",
                                "deviceToken": .string(tokens[number % tokens.count]),
                                "installationId": .string("phone-\(number * 7 % 10)"),
                            ]
                        ).status
                    }
                }
                return try await group.reduce(into: Set<Int>()) { $0.insert($1) }
            }
            #expect(statuses.isSubset(of: [200, 201]))
            let counts = try await bench.stack.database.query(
                """
                select count(*) = count(distinct token) and count(*) = count(distinct installation_id)
                from installations where app = '\(bench.app.id)'
                """
            )
            #expect(counts == ["t"])
        }

        @Test("Silent phones end once, at any replica, and opening the app revives them")
        func silence() async throws {
            let bench = try await Bench()
            let silent = try await bench.registerPhone(token: makeAPNsToken(), channels: [])
            let gone = try await bench.registerPhone(token: makeAPNsToken(), channels: [])
            for (id, days) in [(silent, 61), (gone, 121)] {
                _ = try await bench.stack.database.query(
                    """
                    update installations set updated_at = now() - interval '\(days) days'
                    where object_id = '\(id)'
                    """
                )
            }
            // Each one checks when it starts.
            let first = try await bench.stack.start("carillon-dispatcher")
            let second = try await bench.stack.start("carillon-dispatcher")
            _ = try await eventually("both have ended") {
                let left = try await bench.stack.database.query(
                    """
                    select object_id from installations
                    where app = '\(bench.app.id)' and (valid or object_id = '\(gone)')
                    """
                )
                return left.isEmpty ? true : nil
            }
            for replica in [first, second] {
                #expect(await replica.process.stop() == .status(0))
            }
            #expect(try await bench.installation(silent)["valid"] == false)
            let opened = try await http(
                "PUT",
                "\(bench.registration)/1.1/installations/\(silent)",
                headers: bench.app.clientHeaders,
                body: ["appVersion": "2"]
            )
            #expect(opened.status == 200)
            #expect(try await bench.installation(silent)["valid"] == true)
        }
    }
}
