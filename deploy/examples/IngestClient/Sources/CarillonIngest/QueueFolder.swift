import Foundation

/// The queue's files, all in one folder that one process at a time has locked:
///
/// - `<number>-<id>.queue`: a segment, one object a line, only appended to, and synchronized before
///   `add` returns. A last line without an end was never acknowledged, and is skipped.
/// - `<number>-<id>.settled`: the numbers of its lines that need not be sent again. Not
///   synchronized:
///   a missing one is sent again, and the service recognises it by its `_id`.
/// - `refused.ndjson`: the objects that the service refused, with the reason.
struct QueueFolder {
    /// One object of a segment.
    struct Entry {
        let line: Int
        let type: String
        let id: String
        let added: Date
        let json: Data
    }

    /// A segment that is full is closed; the sender reads one at a time into memory.
    static let segmentSizeBytes: UInt64 = 1 << 20

    private let folder: URL
    /// Locked as long as this is open; the lock ends with the process.
    private let lock: FileHandle
    private var number = 0
    private var current: (name: String, file: FileHandle, end: UInt64)?

    init(_ folder: URL) throws {
        self.folder = folder
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let path = folder.appendingPathComponent("lock").path
        let descriptor = unsafe open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw QueueError.file("\(path) cannot be opened") }
        lock = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else { throw QueueError.inUse(folder.path) }
        let names = try segments()
        number = names.last.flatMap { Int($0.prefix { $0 != "-" }) } ?? 0
        for name in try files(".settled") where !names.contains(name) {
            try FileManager.default.removeItem(at: url(name, ".settled"))
        }
    }

    /// Appends lines to the queue; when this returns they survive any crash.
    mutating func append(_ entries: [(type: String, id: String, json: Data)], at time: Date) throws
    {
        var bytes = Data()
        for entry in entries {
            let stamp = Int(time.timeIntervalSince1970)
            bytes.append(Data("\(entry.type) \(entry.id) \(stamp) ".utf8))
            bytes.append(entry.json)
            bytes.append(UInt8(ascii: "\n"))
        }
        if let current, current.end >= Self.segmentSizeBytes { try closeSegment() }
        let segment = try current ?? makeSegment()
        do {
            try segment.file.write(contentsOf: bytes)
            try segment.file.synchronize()
            current = (segment.name, segment.file, segment.end + UInt64(bytes.count))
        } catch {
            // The unacknowledged part is removed, and nothing is written after it.
            current = nil
            try? segment.file.truncate(atOffset: segment.end)
            try? segment.file.close()
            throw error
        }
    }

    private mutating func makeSegment() throws -> (name: String, file: FileHandle, end: UInt64) {
        number += 1
        // A name is never reused: an old `.settled` file must not apply to it.
        let digits = String(number)
        let name = String(repeating: "0", count: max(0, 12 - digits.count)) + digits
        let file = url(name + "-" + ObjectID.make(), ".queue")
        try Data().write(to: file, options: .withoutOverwriting)
        try synchronizeFolder()
        return (
            file.deletingPathExtension().lastPathComponent, try FileHandle(forWritingTo: file), 0
        )
    }

    private mutating func closeSegment() throws {
        try current?.file.close()
        current = nil
    }

    /// Returns the names of the segments, oldest first. Later objects go to a new one.
    mutating func closedSegments() throws -> [String] {
        try closeSegment()
        return try segments()
    }

    /// Returns the unsettled objects of a segment.
    func read(_ name: String) throws -> [Entry] {
        let settled = Set(try lines(url(name, ".settled")).map(Self.text))
        var entries: [Entry] = []
        for (line, bytes) in try lines(url(name, ".queue")).enumerated()
        where !settled.contains(Self.mark(line)) {
            let parts = bytes.split(separator: UInt8(ascii: " "), maxSplits: 3)
            guard parts.count == 4, let stamp = TimeInterval(Self.text(parts[2])),
                (try? JSONSerialization.jsonObject(with: Data(parts[3]))) is [String: Any]
            else { continue }
            entries.append(
                Entry(
                    line: line,
                    type: Self.text(parts[0]),
                    id: Self.text(parts[1]),
                    added: Date(timeIntervalSince1970: stamp),
                    json: Data(parts[3])
                )
            )
        }
        return entries
    }

    /// Marks lines of a segment as settled.
    func settle(_ lines: [Int], of name: String) throws {
        guard !lines.isEmpty else { return }
        try append(
            Data(lines.map { Self.mark($0) + "\n" }.joined().utf8),
            to: url(name, ".settled")
        )
    }

    /// Returns the number with a word after it, so that a torn line is not another line's number.
    private static func mark(_ line: Int) -> String { "\(line) settled" }

    /// Deletes a segment all of whose lines are settled.
    func remove(_ name: String) throws {
        try FileManager.default.removeItem(at: url(name, ".queue"))
        try? FileManager.default.removeItem(at: url(name, ".settled"))
    }

    // ── Refused objects ─────────────────────────────────────────────────────────────────────────

    func keep(refused: [RefusedObject]) throws {
        guard !refused.isEmpty else { return }
        let file = url("refused", ".ndjson")
        try append(try Self.text(of: refused), to: file, isSynchronized: true)
        try synchronizeFolder()
    }

    /// Returns the refused objects, oldest first. One that was refused twice because of a crash is
    /// here once.
    func refused() throws -> [RefusedObject] {
        var newest: [String: RefusedObject] = [:]
        var order: [String] = []
        for line in try lines(url("refused", ".ndjson")) {
            guard let one = try? JSONDecoder().decode(RefusedObject.self, from: line) else {
                continue
            }
            let key = one.type + " " + one.id
            if newest.updateValue(one, forKey: key) == nil { order.append(key) }
        }
        return order.compactMap { newest[$0] }
    }

    /// Replaces the list in one step.
    func replace(refused: [RefusedObject]) throws {
        try Self.text(of: refused).write(to: url("refused", ".new"))
        let file = try FileHandle(forUpdating: url("refused", ".new"))
        try file.synchronize()
        try file.close()
        let (from, to) = (url("refused", ".new").path, url("refused", ".ndjson").path)
        guard unsafe rename(from, to) == 0 else {
            throw QueueError.file("\(to) cannot be replaced")
        }
        try synchronizeFolder()
    }

    private static func text(of refused: [RefusedObject]) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return try refused.reduce(into: Data()) { $0 += try encoder.encode($1) + Data("\n".utf8) }
    }

    // ── Files ───────────────────────────────────────────────────────────────────────────────────

    private func url(_ name: String, _ suffix: String) -> URL {
        folder.appendingPathComponent(name + suffix)
    }

    private func files(_ suffix: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: folder.path)
            .filter { $0.hasSuffix(suffix) }.map { String($0.dropLast(suffix.count)) }.sorted()
    }

    private func segments() throws -> [String] { try files(".queue") }

    /// Returns the complete lines of a file; the rest after the last line end was torn by a crash.
    private func lines(_ file: URL) throws -> [Data] {
        guard FileManager.default.fileExists(atPath: file.path) else { return [] }
        let bytes = try Data(contentsOf: file)
        return bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
            .dropLast().map { Data($0) }
    }

    private static func text(_ bytes: Data) -> String { String(decoding: bytes, as: UTF8.self) }

    /// Writes to the end of a file, after a line end if a crash tore the last line.
    private func append(_ bytes: Data, to url: URL, isSynchronized: Bool = false) throws {
        if !FileManager.default.fileExists(atPath: url.path) { try Data().write(to: url) }
        let file = try FileHandle(forUpdating: url)
        defer { try? file.close() }
        let end = try file.seekToEnd()
        var bytes = bytes
        if end > 0 {
            try file.seek(toOffset: end - 1)
            if try file.read(upToCount: 1) != Data("\n".utf8) { bytes = Data("\n".utf8) + bytes }
        }
        try file.write(contentsOf: bytes)
        if isSynchronized { try file.synchronize() }
    }

    /// Makes names in the folder survive a loss of power.
    private func synchronizeFolder() throws {
        let descriptor = unsafe open(folder.path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw QueueError.file("\(folder.path) cannot be opened") }
        defer { close(descriptor) }
        guard fsync(descriptor) == 0 else {
            throw QueueError.file("\(folder.path) cannot be synchronized")
        }
    }
}
