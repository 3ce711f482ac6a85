@testable internal import HTTP1

/// Fuzzes the HTTP/1.1 parser. It gives the same events however the bytes are split, never buffers
/// more than a head beside the allowed body, and ends at the first failure.
///
/// One input in 32 is repeated many times, as a client that pipelines without end does.
func fuzzHTTP1(_ bytes: [UInt8]) {
    var bytes = bytes
    var random = Splitmix(seed: bytes)
    if random.next() % 32 == 0, !bytes.isEmpty {
        let request = bytes
        while bytes.count < 72 * 1024 { bytes += request }
    }
    let whole = events(of: [bytes[...]])
    for cut in Pieces.allCases {
        let cutEvents = events(of: cut.cut(bytes))
        require(
            cutEvents == whole,
            "cut (\(cut)) and whole tell other events:\n\(cutEvents)\n\(whole)"
        )
    }
}

private let limits = HTTP1Limits(targetBytes: 200, headBytes: 600, headerCount: 8)
private let maximumBodyBytes = 1000

private enum Told: Equatable {
    case head(HTTPMethod, String, HTTPVersion, HTTPHeaders, flags: [Bool])
    case end([UInt8])
    case failure(HTTPProblem)
}

private func events(of pieces: [ArraySlice<UInt8>]) -> [Told] {
    var parser = HTTP1Parser(limits: limits)
    var events: [Told] = []
    var hasFailed = false
    for piece in pieces {
        parser.append(piece)
        while let event = parser.next() {
            require(!hasFailed, "there is an event after a failure")
            switch event {
            case .head(let head):
                parser.maximumBodyBytes = maximumBodyBytes
                require(head.headers.count <= limits.headerCount, "too many fields")
                require(head.target.utf8.count <= limits.targetBytes + 1, "too long a target")
                _ = try? HTTPServerRequest(head.method, head.target, headers: head.headers)
                events.append(
                    .head(
                        head.method,
                        head.target,
                        head.version,
                        head.headers,
                        flags: [head.keepsAlive, head.expectsContinue, head.hasBody]
                    )
                )
            case .end(let body):
                require(body.count <= maximumBodyBytes, "the body is larger than its limit")
                events.append(.end(body))
            case .failure(let problem):
                require((400...599).contains(problem.status), "no such status")
                hasFailed = true
                events.append(.failure(problem))
            }
        }
        require(parser.bufferedBytes <= limits.headBytes + 1, "it holds \(parser.bufferedBytes)")
    }
    return events
}
