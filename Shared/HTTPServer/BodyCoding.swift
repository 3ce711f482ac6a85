internal import Compression

extension HTTPServerRequest {
    /// Whether the body is not yet what its sender meant.
    package var isBodyCoded: Bool {
        guard !body.isEmpty else { return false }
        let (coding, count) = headers.first("content-encoding")
        return count > 1 || coding.map { !Self.plainCodings.contains($0.lowercased()) } ?? false
    }

    /// Values of `Content-Encoding` that leave the body as it is. Some clients (Azure's Java SDK) write
    /// the charset there.
    private static let plainCodings: Set<String> = ["identity", "utf-8", "utf8"]

    /// Gives the request its body as its sender meant it, without its `Content-Encoding`. Where the
    /// router gives bodies as they are sent, this is the handler's to ask for, once it knows who calls:
    /// until then nothing is inflated for anybody.
    ///
    /// - Throws: 413 beyond the route's bound, 415 for a coding that is not ours, or more than one, 400
    ///   for broken bytes, 503 where there is no room for what comes out.
    package mutating func decodeBody() throws(HTTPProblem) {
        guard isBodyCoded else { return }
        do throws(HTTPProblem) {
            try take(try decodedBody(maximumBytes: heldBody?.maximumBytes ?? .max))
        } catch {
            heldBody?.refused(error.status)
            throw error
        }
    }

    /// The same for routes that take large bodies, a few kilobytes of which may be all of it: inflated
    /// where the loop does not wait for it.
    ///
    /// - Parameter elsewhere: Runs what it is given there.
    /// - Throws: As `decodeBody()`, and what `elsewhere` throws.
    package mutating func decodeBody(
        _ elsewhere: (@escaping @Sendable () throws -> [UInt8]) async throws -> [UInt8]
    ) async throws {
        guard isBodyCoded else { return }
        var coded = self
        // Both are the loop's.
        coded.heldBody = nil
        coded.caller = .always
        do {
            let (coded, bound) = (coded, heldBody?.maximumBytes ?? .max)
            try take(try await elsewhere { try coded.decodedBody(maximumBytes: bound) })
        } catch let problem as HTTPProblem {
            heldBody?.refused(problem.status)
            throw problem
        }
    }

    private mutating func take(_ decoded: [UInt8]) throws(HTTPProblem) {
        let sent = body.count
        put(decoded)
        // What was sent is kept beside it, by whoever gave the request.
        try heldBody?.hold(sent + decoded.count)
    }

    /// The same by what the body's first bytes are, for clients whose headers name another coding than
    /// they used, or none.
    ///
    /// - Returns: The body as its sender meant it.
    package func bodyByItsBytes() throws(HTTPProblem) -> [UInt8] {
        let isGzip = body.count > 1 && body[0] == 0x1f && body[1] == 0x8b
        guard isGzip else { return body }
        var request = self
        request.headers["content-encoding"] = "gzip"
        try request.decodeBody()
        return request.body
    }

    /// The same, for whoever counts bytes and refusals himself.
    mutating func undoBodyCoding() throws(HTTPProblem) {
        guard isBodyCoded else { return }
        put(try decodedBody(maximumBytes: heldBody?.maximumBytes ?? .max))
    }

    private mutating func put(_ decoded: [UInt8]) {
        body = decoded
        headers.remove("content-encoding")
        headers["content-length"] = String(decoded.count)
    }

    /// The body as its sender meant it; no more than `maximumBytes` of it, and a buffer, are inflated.
    /// Throws as `decodeBody`.
    package func decodedBody(maximumBytes: Int) throws(HTTPProblem) -> [UInt8] {
        guard isBodyCoded else { return body }
        let (name, count) = headers.first("content-encoding")
        guard count == 1, let coding = name.flatMap(Compression.init(contentCoding:)) else {
            throw HTTPProblem(
                status: 415,
                detail: "the body may be gzip or zstd, once",
                headers: ["Accept-Encoding": "gzip, zstd"]
            )
        }
        do throws(CompressionError) {
            return try coding.decompress(body, maximumBytes: min(maximumBytes, Int.max - 1))
        } catch {
            switch error {
            case .tooLarge:
                throw HTTPProblem(
                    status: 413,
                    detail: "the body inflates to more than \(maximumBytes) bytes"
                )
            case .broken:
                throw HTTPProblem(status: 400, detail: "the body is not \(coding.rawValue)")
            case .unavailable:
                throw HTTPProblem(status: 503, detail: "the body cannot be inflated now")
            }
        }
    }
}
