import Observability

/// Contents that were read lately: a push to many devices has one.
final class MessageContentCache: Sendable {
    private static let maximumBytes = 16 << 20

    private let lock = Lock()
    nonisolated(unsafe) private var contents: [Int: MessageContent] = [:]
    nonisolated(unsafe) private var weightBytes = 0

    /// Returns the known contents, and the rows that must be read.
    func find(_ identities: Set<Int>) -> (known: [Int: MessageContent], missing: [Int]) {
        lock.withLock {
            var known: [Int: MessageContent] = [:]
            var missing: [Int] = []
            for identity in identities {
                if let content = unsafe contents[identity] {
                    known[identity] = content
                } else {
                    missing.append(identity)
                }
            }
            return (known, missing)
        }
    }

    func add(_ read: [MessageContent]) {
        lock.withLock {
            let more = read.reduce(0) { $0 + $1.weightBytes }
            if unsafe weightBytes + more > Self.maximumBytes {
                unsafe contents.removeAll()
                unsafe weightBytes = 0
            }
            guard more <= Self.maximumBytes else { return }
            for content in read
            where unsafe contents.updateValue(content, forKey: content.identity) == nil {
                unsafe weightBytes += content.weightBytes
            }
        }
    }
}
