import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// The address of Carillon's ingest service, and the app whose key is used.
public struct IngestServer: Sendable {
    let url: URL
    let app: String
    let key: String
    private let session: URLSession

    /// - Parameters:
    ///   - url: For example `https://ingest.example.com`.
    ///   - app: The app's id.
    ///   - key: Its app key, which may be in every copy of the app, as it can write and not read.
    public init(url: URL, app: String, key: String) {
        (self.url, self.app, self.key) = (url, app, key)
        let configuration = URLSessionConfiguration.ephemeral
        configuration.timeoutIntervalForRequest = 30
        session = URLSession(configuration: configuration)
    }

    /// The result of one batch.
    enum Reply {
        case answered(IngestAnswer)
        /// Every repeat would be refused: a wrong key, a type that is not declared.
        case rejected(String)
        case tooLarge
        /// There was no response, or one that asks for a repeat, after this many seconds if it says
        /// so.
        case unavailable(after: TimeInterval?, String)
    }

    func post(_ objects: [Data], type: String) async throws(CancellationError) -> Reply {
        var request = URLRequest(
            url: url.appendingPathComponent("v1/ingest").appendingPathComponent(type)
        )
        request.httpMethod = "POST"
        request.setValue("application/x-ndjson", forHTTPHeaderField: "Content-Type")
        request.setValue(app, forHTTPHeaderField: "X-LC-Id")
        request.setValue(key, forHTTPHeaderField: "X-LC-Key")
        #if canImport(FoundationNetworking)
            // On Linux, a connection that ended between two requests would stall the second.
            request.setValue("close", forHTTPHeaderField: "Connection")
        #endif
        request.httpBody = objects.reduce(into: Data()) { $0 += $1 + Data("\n".utf8) }
        let body: Data
        let response: URLResponse
        do {
            (body, response) = try await data(for: request)
        } catch {
            if Task.isCancelled { throw CancellationError() }
            return .unavailable(after: nil, "no answer: \(error.localizedDescription)")
        }
        guard let response = response as? HTTPURLResponse else {
            return .unavailable(after: nil, "no answer in HTTP")
        }
        switch response.statusCode {
        case 200:
            // A truncated response says nothing.
            guard let answer = try? JSONDecoder().decode(IngestAnswer.self, from: body) else {
                return .unavailable(after: nil, "an answer that cannot be read")
            }
            return .answered(answer)
        case 413: return .tooLarge
        case 408, 429, 500...599:
            // A date is ignored, as the device's clock may be wrong.
            let wait = response.value(forHTTPHeaderField: "Retry-After").flatMap {
                TimeInterval($0)
            }
            return .unavailable(
                after: wait.map { min(max(0, $0), 3_600) },
                "\(response.statusCode)"
            )
        default:
            let text = String(decoding: body.prefix(300), as: UTF8.self)
            return .rejected("\(response.statusCode) \(text)")
        }
    }
}

extension IngestServer {
    #if canImport(FoundationNetworking)
        /// Does the same as on Apple's systems, but leaves a cancelled request to end by itself:
        /// on Linux, `URLSessionTask.cancel` ends the process if the response comes meanwhile.
        /// The service accepts a repeat of what such a request sent.
        private func data(for request: URLRequest) async throws -> (Data, URLResponse) {
            let (results, result) = AsyncThrowingStream.makeStream(of: (Data, URLResponse).self)
            let task = session.dataTask(with: request) { body, response, error in
                if let body, let response {
                    result.yield((body, response))
                } else {
                    result.finish(throwing: error ?? URLError(.unknown))
                }
            }
            task.resume()
            for try await answer in results { return answer }
            throw CancellationError()
        }
    #else
        private func data(for request: URLRequest) async throws -> (Data, URLResponse) {
            try await session.data(for: request)
        }
    #endif
}

/// The service's response: every object of a batch is in one of the three lists.
struct IngestAnswer: Decodable {
    struct Refused: Decodable {
        let index: Int
        let pointer: String
        let reason: String
    }

    let accepted: [String]
    let duplicates: [String]
    let refused: [Refused]
}
