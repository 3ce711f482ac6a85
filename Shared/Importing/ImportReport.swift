import Glibc
import JSON
import Observability

/// A file with all rejected records, one JSON object a line: `{"line": 18, "reason": "…", "record": "…"}`.
/// Only its owner may read it, as records have tokens.
///
/// A batch is written before its transaction commits. If that fails, the next attempt, or the next
/// run, replaces these lines. So the report has each rejected line once.
package final class ImportReport: Sendable {
    package struct Entry: Sendable {
        let line: Int
        let reason: String
        let record: [UInt8]
    }

    /// Longer records are cut.
    private static let recordBytes = 64 * 1024

    private let path: String
    private let descriptor: Int32
    private let lock = Lock()
    /// The end of the committed lines, and the line of the file before which they are.
    nonisolated(unsafe) private var committed = 0
    nonisolated(unsafe) private var end = 0
    nonisolated(unsafe) private var line = 1

    /// - Throws: `ImportError` if the file cannot be written.
    package init(path: String) throws(ImportError) {
        self.path = path
        descriptor = unsafe open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw ImportError(.unusable, "the report \(path) cannot be written")
        }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
    }

    /// Drops the entries of lines from `line` on: they belong to a batch that was not committed.
    func begin(before line: Int) async throws(ImportError) {
        let source = try ImportSource(path: path)
        var splitter = RecordSplitter(.lines)
        var kept = 0
        while true {
            let part = try await source.next()
            if part.isEmpty { break }
            try splitter.take(part) { record in
                let entry = try? JSONValue.parse(record.bytes)
                if let own = entry?["line"]?.integer, own < line { kept = record.end }
            }
        }
        try truncate(to: kept)
        lock.withLock { unsafe (committed, end, self.line) = (kept, kept, line) }
    }

    /// Writes the entries of a batch, whose first line is `line`. If it is that of the last call, its
    /// entries are replaced.
    func write(_ entries: [Entry], before line: Int) throws(ImportError) {
        let start = lock.withLock {
            if unsafe self.line != line { unsafe (self.line, committed) = (line, end) }
            return unsafe committed
        }
        var bytes: [UInt8] = []
        for entry in entries {
            let object: JSONObject = [
                "line": JSONValue(entry.line), "reason": .string(entry.reason),
                "record": .string(
                    String(decoding: entry.record.prefix(Self.recordBytes), as: UTF8.self)
                ),
            ]
            bytes += JSONValue.object(object).bytes + [UInt8(ascii: "\n")]
        }
        try truncate(to: start)
        var rest = bytes[...]
        var place = start
        while !rest.isEmpty {
            let count = unsafe rest.withUnsafeBytes { buffer in
                unsafe pwrite(descriptor, buffer.baseAddress, buffer.count, off_t(place))
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw Self.unwritable }
            place += count
            rest = rest.dropFirst(count)
        }
        lock.withLock { unsafe end = place }
    }

    private func truncate(to length: Int) throws(ImportError) {
        guard ftruncate(descriptor, off_t(length)) == 0 else { throw Self.unwritable }
    }

    private static let unwritable = ImportError(.broken, "the report cannot be written any more")
}
