import InstallationStorage
import JSON
import PushCore

/// The file or pipe of an import.
package enum ImportInput: Sendable {
    case file(String)
    /// An open descriptor, such as that of the standard input.
    case pipe(Int32)
    /// An uploaded file.
    case parts(ImportParts)

    package func open() throws(ImportError) -> ImportSource {
        switch self {
        case .file(let path): try ImportSource(path: path)
        case .pipe(let descriptor): ImportSource(pipe: descriptor)
        case .parts(let parts): ImportSource(parts)
        }
    }

    /// Whether a stopped job runs again: the operator of a command has the file.
    var resumesStopped: Bool {
        switch self {
        case .file, .pipe: true
        case .parts: false
        }
    }

    /// Returns the columns in the header line of a CSV file.
    ///
    /// - Throws: `ImportError`.
    package func columns() async throws(ImportError) -> [String] {
        let head = try await open().peek(RecordSplitter.headBytes)
        let start = head.starts(with: ImportReader.mark) ? ImportReader.mark.count : 0
        return try ImportReader.header(head, from: start).names
    }
}

/// Reads a file's records in batches, and validates each of them. Its calls are long work, so they run
/// outside of any event loop.
actor ImportReader {
    struct Record: Sendable {
        let line: Int
        let content: Result<ImportedInstallation, Rejection>
        /// The record itself, for a report.
        let bytes: [UInt8]
    }

    struct Batch: Sendable {
        var records: [Record] = []
        /// The place after the records.
        var position: ImportPosition
        var isLast = false
        /// Why the file cannot be read after these records.
        var failure: ImportError?
    }

    private let source: ImportSource
    private let format: ImportFormat
    private let app: String
    private let now: Instant
    private var splitter: RecordSplitter
    private var mapping: CSVMapping?
    private var queue: [RawRecord] = []
    private var next = 0
    private var hasEnded = false
    private var failure: ImportError?

    /// Opens the input, and continues at a position.
    ///
    /// - Parameters:
    ///   - input: The file.
    ///   - format: Its format.
    ///   - app: The app of the installations.
    ///   - options: The mapping of columns.
    ///   - position: The end of a record; 0 at the beginning.
    ///   - now: The time of the import.
    /// - Throws: `ImportError` if the file, its header or the mapping is unusable.
    init(
        _ input: ImportInput,
        format: ImportFormat,
        app: String,
        options: ImportOptions,
        from position: ImportPosition = ImportPosition(),
        now: Instant
    ) async throws(ImportError) {
        let source = try input.open()
        (self.format, self.app, self.now) = (format, app, now)
        let head = try await source.peek(RecordSplitter.headBytes)
        var start = ImportPosition(bytes: head.starts(with: Self.mark) ? Self.mark.count : 0)
        if format == .csv {
            let header = try Self.header(head, from: start.bytes)
            mapping = try CSVMapping(header: header.names, given: options.columns)
            start = header.end
        } else if !options.columns.isEmpty {
            throw ImportError(.unusable, "only columns of CSV can be mapped")
        }
        let isResumed = position.bytes > start.bytes
        if isResumed { start = position }
        try await source.skip(to: start.bytes)
        splitter = RecordSplitter(
            RecordSplitter.form(format, head: head),
            position: start.bytes,
            line: start.line,
            isResumed: isResumed
        )
        self.source = source
    }

    /// A byte order mark.
    fileprivate static let mark: [UInt8] = [0xEF, 0xBB, 0xBF]

    fileprivate static func header(
        _ head: [UInt8],
        from start: Int
    ) throws(ImportError) -> (names: [String], end: ImportPosition) {
        var splitter = RecordSplitter(.csv, position: start)
        var first: RawRecord?
        try splitter.take(Array(head[start...])) { record in first = first ?? record }
        if first == nil, head.count < RecordSplitter.headBytes { first = try splitter.finish() }
        guard let first else {
            throw ImportError(.unusable, "the file has no header line of at most 64 KiB")
        }
        do throws(Rejection) {
            let names = try CSVRecord.values(first.bytes)
            return (names, ImportPosition(bytes: first.end, line: first.endLine))
        } catch {
            throw ImportError(.unusable, "the header line: \(error.reason)")
        }
    }

    /// Reads the next batch.
    func batch() async -> Batch {
        var batch = Batch(
            position: ImportPosition(bytes: splitter.position, line: splitter.line)
        )
        var bytes = 0
        while batch.records.count < InstallationImport.maximumRows,
            bytes < ImportLimits.batchBytes
        {
            while next == queue.count, !hasEnded { await readPart() }
            guard next < queue.count else { break }
            let raw = queue[next]
            next += 1
            bytes += raw.bytes.count
            batch.records.append(
                Record(line: raw.line, content: content(of: raw), bytes: raw.bytes)
            )
            batch.position = ImportPosition(bytes: raw.end, line: raw.endLine)
        }
        batch.position.consumed = source.consumed
        if hasEnded, next == queue.count {
            batch.failure = failure
            batch.isLast = failure == nil
        }
        return batch
    }

    private func readPart() async {
        var found: [RawRecord] = []
        do throws(ImportError) {
            let part = try await source.next()
            if part.isEmpty {
                hasEnded = true
                if let last = try splitter.finish() { found.append(last) }
            } else {
                try splitter.take(part) { record in found.append(record) }
            }
        } catch {
            hasEnded = true
            failure = error
        }
        (queue, next) = (found, 0)
    }

    private func content(of raw: RawRecord) -> Result<ImportedInstallation, Rejection> {
        do throws(Rejection) {
            return .success(try installation(of: raw))
        } catch {
            return .failure(error)
        }
    }

    private func installation(of raw: RawRecord) throws(Rejection) -> ImportedInstallation {
        if raw.isTooLong { throw Rejection("the record is longer than 1 MiB") }
        if raw.isCut { throw Rejection("the file ends inside this record") }
        let fields: RecordFields
        switch format {
        case .leancloud: fields = try LeanCloudRecord.fields(raw.bytes)
        case .parse: fields = try ParseRecord.fields(raw.bytes)
        case .sns: fields = try SNSRecord.fields(raw.bytes)
        case .csv:
            guard let mapping else { throw Rejection("the file has no header line") }
            fields = try CSVRecord.fields(raw.bytes, mapping)
        case .azure:
            return try AzureRecord.installation(raw.bytes, app: app, now: now, newID: newID)
        }
        return try fields.installation(app: app, now: now, newID: newID)
    }

    private func newID() -> String { ObjectID.make(at: now, random: .random(in: 0 ... .max)) }
}
