internal import Compression

extension HTTPServerRequest {
    /// Whether the body still has a content coding that must be undone.
    package var isBodyCoded: Bool {
        guard !body.isEmpty else { return false }
        let (coding, count) = headers.first("content-encoding")
        return count > 1 || coding.map { !Self.plainCodings.contains($0.lowercased()) } ?? false
    }

    /// Values of `Content-Encoding` that leave the body as it is. Some clients (Azure's Java SDK) write
    /// the charset there.
    private static let plainCodings: Set<String> = ["identity", "utf-8", "utf8"]

    /// Decodes the body by its `Content-Encoding`. If the router passes bodies as sent
    /// (`givesBodiesAsSent`), the handler calls this once the client is authenticated; nothing is
    /// inflated before.
    ///
    /// - Throws: 413 beyond the route's limit, 415 for an unsupported coding or more than one, 400
    ///   for broken bytes, 503 if there is no room for the result.
    package mutating func decodeBody() throws(HTTPProblem) {
        guard isBodyCoded else { return }
        do throws(HTTPProblem) {
            try take(try decodedBody(maximumBytes: heldBody?.maximumBytes ?? .max))
        } catch {
            heldBody?.refused(error.status)
            throw error
        }
    }

    /// Decodes the body without blocking the loop: for routes that accept large bodies, which may
    /// inflate from a few kilobytes.
    ///
    /// - Parameter elsewhere: Runs its argument off the loop.
    /// - Throws: As `decodeBody()`, and the errors of `elsewhere`.
    package mutating func decodeBody(
        _ elsewhere: (@escaping @Sendable () throws -> [UInt8]) async throws -> [UInt8]
    ) async throws {
        guard isBodyCoded else { return }
        var coded = self
        // Both belong to the loop, so the copy that leaves the loop has neither.
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
        // The owner of the request still holds the sent bytes, too.
        try heldBody?.hold(sent + decoded.count)
    }

    /// Decodes a body whose first bytes show gzip, whatever its headers say: some clients name
    /// another coding, or no coding.
    ///
    /// - Returns: The decoded body.
    package func bodyByItsBytes() throws(HTTPProblem) -> [UInt8] {
        let isGzip = body.count > 1 && body[0] == 0x1f && body[1] == 0x8b
        guard isGzip else { return body }
        var request = self
        request.headers["content-encoding"] = "gzip"
        try request.decodeBody()
        return request.body
    }

    /// Decodes the body; the caller counts the bytes and the refusals.
    mutating func undoBodyCoding() throws(HTTPProblem) {
        guard isBodyCoded else { return }
        put(try decodedBody(maximumBytes: heldBody?.maximumBytes ?? .max))
    }

    private mutating func put(_ decoded: [UInt8]) {
        body = decoded
        headers.remove("content-encoding")
        headers["content-length"] = String(decoded.count)
    }

    /// Returns the decoded body; inflates at most `maximumBytes` and one buffer more. Throws as
    /// `decodeBody`.
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
