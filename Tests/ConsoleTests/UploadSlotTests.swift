import HTTPServer
import Testing

@testable import Console

@Suite("Room for uploads", .timeLimit(.minutes(1)))
struct UploadSlotTests {
    /// Runs `body` while apps with the numbers below `count` upload.
    private func occupied(_ count: Int, _ body: () async throws -> Void) async throws {
        guard count > 0 else { return try await body() }
        try await UploadSlots.use(of: "app \(count)") { try await occupied(count - 1, body) }
    }

    private func isRefused(_ app: String) async throws -> Bool {
        do {
            try await UploadSlots.use(of: app) {}
            return false
        } catch let problem as HTTPProblem {
            #expect(problem.status == 429 && problem.headers["retry-after"] == "60")
            return true
        }
    }

    @Test("An app has one upload at a time, and a replica eight; the end of one makes room")
    func bounds() async throws {
        struct Broken: Error {}
        for _ in 0..<2 {
            try await occupied(7) {
                #expect(try await isRefused("app 1"))
                #expect(try await !isRefused("app 8"))
                // An upload that fails leaves its place, too.
                await #expect(throws: Broken.self) {
                    try await UploadSlots.use(of: "app 8") { throw Broken() }
                }
                try await UploadSlots.use(of: "app 8") {
                    let isFull = try await isRefused("app 9")
                    #expect(isFull)
                }
                #expect(try await !isRefused("app 9"))
            }
        }
        #expect(try await !isRefused("app 1"))
    }
}
