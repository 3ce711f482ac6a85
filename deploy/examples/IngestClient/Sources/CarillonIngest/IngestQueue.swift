import Foundation

/// Stores objects on disk until the service has accepted them, as an `AsymmetricObject` did.
///
/// An added object is sent until the service reports its `_id` as accepted or as a duplicate, and
/// is then deleted here; it cannot be read back. No failure of the process or the network loses it,
/// and a repeat changes nothing, as the service stores one object of an `_id`.
///
/// This is valid as long as the service stores ids (`INGEST_KEY_RETENTION`, 30 days). An object
/// that was stored here for longer is not sent but quarantined with the refused ones: the app
/// decides.
public actor IngestQueue {
    /// The result of one pass over the queue.
    public enum Outcome: Sendable, Equatable {
        /// The queue is empty.
        case empty
        /// The rest should be sent after this many seconds, for this reason.
        case later(TimeInterval, String)
    }

    /// The decision about a refused object.
    public enum Decision: Sendable {
        case keep
        case drop
        /// This JSON object replaces it, under the same `_id` unless it has another.
        case send(Data)
    }

    /// Objects in one request: the maximum is 1,000 and 4 MiB.
    static let batchCount = 200
    static let batchSizeBytes = 512 << 10
    /// Bytes of one object: the service refuses larger ones.
    static let objectSizeBytes = 256 << 10
    /// A day less than the service stores ids.
    static let longestHold: TimeInterval = 29 * 86_400

    private var folder: QueueFolder
    private let server: IngestServer
    private var backoff = Backoff()
    private let wakeUp = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// - Throws: ``QueueError/inUse(_:)`` while another process has the folder.
    public init(folder: URL, server: IngestServer) throws {
        self.folder = try QueueFolder(folder)
        self.server = server
    }

    // ── Adding ──────────────────────────────────────────────────────────────────────────────────

    /// Writes a JSON object to disk and returns its `_id`, which is made if it is missing.
    @discardableResult
    public func add(_ object: Data, type: String) throws -> String {
        try add([object], type: type)[0]
    }

    @discardableResult
    public func add(_ object: some Encodable & Sendable, type: String) throws -> String {
        try add(JSONEncoder().encode(object), type: type)
    }

    /// Adds several objects at once, all or none, with one wait for the disk.
    public func add(_ objects: [Data], type: String) throws -> [String] {
        guard !type.isEmpty, type.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw QueueError.object("the name of a type is needed")
        }
        let entries = try objects.map { object in
            let (id, json) = try Self.prepare(object)
            return (type, id, json)
        }
        try folder.append(entries, at: Date())
        wakeUp.continuation.yield()
        return entries.map(\.1)
    }

    /// Returns one line of JSON that has an `_id`. Its text stays unchanged, numbers above all.
    private static func prepare(_ object: Data, id wanted: String? = nil) throws -> (String, Data) {
        guard object.count <= objectSizeBytes else {
            throw QueueError.object("an object has at most \(objectSizeBytes) bytes")
        }
        guard let fields = (try? JSONSerialization.jsonObject(with: object)) as? [String: Any],
            let start = object.firstIndex(of: UInt8(ascii: "{"))
        else { throw QueueError.object("this is no JSON object") }
        // In JSON, line ends are found between values only.
        var json = object[start...]
        for index in json.indices where json[index] == 0x0A || json[index] == 0x0D {
            json[index] = UInt8(ascii: " ")
        }
        if let value = fields["_id"] {
            guard let id = ObjectID.canonical(value) else {
                throw QueueError.object("_id must be an ObjectId or a UUID")
            }
            return (id, Data(json))
        }
        let id = wanted ?? ObjectID.make()
        let member = Data("{\"_id\":\"\(id)\"\(fields.isEmpty ? "" : ",")".utf8)
        return (id, member + json.dropFirst())
    }

    // ── Sending ─────────────────────────────────────────────────────────────────────────────────

    /// Sends until it is cancelled, with pauses as needed. `report` gets the reasons.
    public func run(report: @Sendable (String) -> Void = { _ in }) async throws {
        while true {
            try await drain(report: report)
            // A wake-up that came meanwhile is still in the stream.
            for await _ in wakeUp.stream { break }
            try Task.checkCancellation()
        }
    }

    /// Sends until the queue is empty.
    public func drain(report: @Sendable (String) -> Void = { _ in }) async throws {
        while case .later(let seconds, let reason) = try await send() {
            report(reason)
            try await Task.sleep(for: .seconds(seconds))
        }
    }

    /// Sends every object on disk to the service once, in batches, until the service asks for a
    /// pause.
    public func send() async throws -> Outcome {
        var blocked: [String: String] = [:]
        for name in try folder.closedSegments() {
            var entries = try folder.read(name)
            try setApartOld(&entries, of: name)
            for type in Set(entries.map(\.type)) where blocked[type] == nil {
                var waiting = entries[...].filter { $0.type == type }
                var most = Self.batchCount
                while !waiting.isEmpty {
                    try Task.checkCancellation()
                    let batch = Self.batch(of: waiting, most: most)
                    switch try await server.post(batch.map(\.json), type: type) {
                    case .answered(let answer):
                        let settled = try settle(batch, of: name, by: answer)
                        // A response that names no object must not be requested in a loop.
                        guard !settled.isEmpty else {
                            return .later(backoff.next(), "the answer names no object")
                        }
                        backoff = Backoff()
                        waiting.removeAll { settled.contains($0.line) }
                        entries.removeAll { settled.contains($0.line) }
                    case .tooLarge where batch.count > 1:
                        most = batch.count / 2
                    case .tooLarge:
                        let reason = "too large for the service"
                        try quarantine(batch.map { ($0, "", reason) }, of: name)
                        waiting.removeFirst()
                        entries.removeAll { $0.line == batch[0].line }
                    case .rejected(let reason):
                        // Only this type is blocked, for example if it is not declared yet; others
                        // continue.
                        blocked[type] = reason
                        waiting = []
                    case .unavailable(let wait, let reason):
                        return .later(backoff.next(atLeast: wait), reason)
                    }
                }
            }
            if entries.isEmpty { try folder.remove(name) }
        }
        guard let (type, reason) = blocked.first else { return .empty }
        return .later(backoff.next(), "\(type): \(reason)")
    }

    private static func batch(of waiting: [QueueFolder.Entry], most: Int) -> [QueueFolder.Entry] {
        var size = 0
        return waiting.prefix(most).enumerated().prefix { index, entry in
            size += entry.json.count + 1
            return index == 0 || size <= batchSizeBytes
        }.map(\.element)
    }

    /// Removes the objects that the response names, and only those; returns the numbers of their
    /// lines.
    private func settle(
        _ batch: [QueueFolder.Entry],
        of name: String,
        by answer: IngestAnswer
    ) throws -> Set<Int> {
        let refused = answer.refused.filter { batch.indices.contains($0.index) }
        try quarantine(refused.map { (batch[$0.index], $0.pointer, $0.reason) }, of: name)
        var lines = Set(refused.map { batch[$0.index].line })
        let kept = Set((answer.accepted + answer.duplicates).map { $0.lowercased() })
        let done = batch.filter { kept.contains($0.id) && !lines.contains($0.line) }.map(\.line)
        try folder.settle(done, of: name)
        lines.formUnion(done)
        return lines
    }

    // ── Refused ─────────────────────────────────────────────────────────────────────────────────

    /// Returns the objects that the service refused, with the place and reason of the error, oldest
    /// first.
    public func refused() throws -> [RefusedObject] { try folder.refused() }

    /// Lets the app correct or drop each refused object.
    public func decide(_ decision: (RefusedObject) throws -> Decision) throws {
        var kept: [RefusedObject] = []
        for one in try folder.refused() {
            switch try decision(one) {
            case .keep: kept.append(one)
            case .drop: break
            case .send(let object):
                let (id, json) = try Self.prepare(object, id: one.id)
                try folder.append([(one.type, id, json)], at: Date())
                wakeUp.continuation.yield()
            }
        }
        try folder.replace(refused: kept)
    }

    /// Writes them to the quarantine on disk first, and then removes them from the queue.
    private func quarantine(
        _ refused: [(entry: QueueFolder.Entry, pointer: String, reason: String)],
        of name: String
    ) throws {
        try folder.keep(
            refused: refused.map { one in
                RefusedObject(
                    type: one.entry.type,
                    id: one.entry.id,
                    pointer: one.pointer,
                    reason: one.reason,
                    object: String(decoding: one.entry.json, as: UTF8.self)
                )
            }
        )
        try folder.settle(refused.map(\.entry.line), of: name)
    }

    private func setApartOld(_ entries: inout [QueueFolder.Entry], of name: String) throws {
        let now = Date()
        let old = entries.filter { now.timeIntervalSince($0.added) > Self.longestHold }
        let reason = "held for so long that the service may not know any more whether it has it"
        try quarantine(old.map { ($0, "", reason) }, of: name)
        entries.removeAll { now.timeIntervalSince($0.added) > Self.longestHold }
    }
}

/// An object that the service refuses in this form.
public struct RefusedObject: Codable, Sendable, Equatable {
    public let type: String
    public let id: String
    /// The place of the error in the object, as a JSON pointer; empty for the entire object.
    public let pointer: String
    public let reason: String
    /// Its JSON.
    public let object: String
}

public enum QueueError: Error, Equatable, CustomStringConvertible {
    /// Another process, or another queue of this one, has the folder.
    case inUse(String)
    /// The object cannot be sent.
    case object(String)
    case file(String)

    public var description: String {
        switch self {
        case .inUse(let folder): "\(folder) is in use by another process"
        case .object(let problem), .file(let problem): problem
        }
    }
}

/// Doubles the wait after each failure, up to a minute, with jitter.
struct Backoff {
    private var failures = 0

    mutating func next(atLeast asked: TimeInterval? = nil) -> TimeInterval {
        failures = min(failures + 1, 8)
        let longest = min(60, 0.25 * Double(1 << failures))
        let own = Double.random(in: longest / 2...longest)
        // The service's wait is a minimum, so that not all devices come back at the same moment.
        guard let asked else { return own }
        return max(own, asked * Double.random(in: 1...1.1))
    }
}
