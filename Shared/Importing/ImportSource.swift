import Compression
import Cryptography
import Glibc

/// A file that is stored in parts: its bytes as they were uploaded.
package struct ImportParts: Sendable {
    /// The size of each part but the last.
    package static let partBytes = 1 << 20
    /// The most bytes that its content may inflate to: a small file of gzip can have any size.
    static let maximumInflatedBytes = 16 << 30

    let count: Int
    /// Reads a part; `nil` if it is deleted.
    let read: @Sendable (_ number: Int) async throws -> [UInt8]?

    package init(
        count: Int,
        read: @escaping @Sendable (_ number: Int) async throws -> [UInt8]?
    ) {
        (self.count, self.read) = (count, read)
    }
}

/// The bytes of an export: a file, plain or gzip, or a pipe.
///
/// Positions count decompressed bytes. A plain file continues at a position at once; a gzip file is
/// decompressed up to it.
///
/// One task at a time uses it.
package final class ImportSource {
    /// The identity of a file, by which an interrupted import finds it again.
    package struct Fingerprint: Sendable, Equatable {
        /// Without its folder.
        package let name: String
        package let bytes: Int
        /// SHA-256 of the size and the first MiB.
        package let digest: [UInt8]
    }

    private static let partBytes = 256 * 1024
    private static let fingerprintBytes = 1 << 20
    private static let gzipMagic: [UInt8] = [0x1f, 0x8b]

    private let descriptor: Int32
    private let ownsDescriptor: Bool
    private let parts: ImportParts?
    private var nextPart = 0
    private var inflatedBytes = 0
    private var gzip: GzipStream?
    private var isStarted = false
    /// Bytes that were read ahead.
    private var ahead: [UInt8] = []
    /// `nil` for a pipe.
    package let fingerprint: Fingerprint?
    /// The bytes that were read from the file, before decompression.
    package private(set) var consumed = 0

    /// Opens a file.
    ///
    /// - Throws: `ImportError` if the file cannot be read.
    package init(path: String) throws(ImportError) {
        descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        ownsDescriptor = true
        parts = nil
        guard descriptor >= 0 else {
            fingerprint = nil
            throw ImportError(.unusable, "the file \(path) cannot be read")
        }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            fingerprint = nil
            throw ImportError(
                .unusable,
                "\(path) is not a regular file; use - for a pipe on standard input"
            )
        }
        let size = Int(status.st_size)
        guard let head = Self.head(of: descriptor, Self.fingerprintBytes) else {
            fingerprint = nil
            throw ImportError(.unusable, "the file \(path) cannot be read")
        }
        let name = path.split(separator: "/").last.map(String.init) ?? path
        fingerprint = Fingerprint(
            name: name,
            bytes: size,
            digest: sha256(Array("\(size)\n".utf8) + head)
        )
    }

    /// Reads a pipe, whose descriptor stays open. It cannot be read twice.
    package init(pipe descriptor: Int32) {
        self.descriptor = descriptor
        ownsDescriptor = false
        parts = nil
        fingerprint = nil
    }

    /// Reads stored parts.
    package init(_ parts: ImportParts) {
        (descriptor, ownsDescriptor, fingerprint) = (-1, false, nil)
        self.parts = parts
    }

    deinit {
        if ownsDescriptor, descriptor >= 0 { close(descriptor) }
    }

    private static func head(of descriptor: Int32, _ count: Int) -> [UInt8]? {
        var head: [UInt8] = []
        while head.count < count {
            let offset = head.count
            let part = unsafe read(count - offset) { buffer in
                unsafe pread(descriptor, buffer.baseAddress, buffer.count, offset)
            }
            guard let part else { return nil }
            if part.isEmpty { break }
            head += part
        }
        return head
    }

    /// Reads up to `count` bytes; `nil` after an error.
    private static func read(
        _ count: Int,
        _ call: (UnsafeMutableRawBufferPointer) -> Int
    ) -> [UInt8]? {
        var result = 0
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            repeat {
                result = unsafe call(UnsafeMutableRawBufferPointer(buffer))
            } while result < 0 && errno == EINTR
            filled = max(0, result)
        }
        return result < 0 ? nil : bytes
    }

    /// Returns the next decompressed bytes; empty at the end.
    ///
    /// - Throws: `ImportError` of kind `broken`.
    package func next() async throws(ImportError) -> [UInt8] {
        if !ahead.isEmpty {
            defer { ahead = [] }
            return ahead
        }
        let first = try await start()
        guard let gzip else {
            if let first { return first }
            return try await part()
        }
        if let first { gzip.feed(first) }
        while true {
            let bytes = try Self.inflate(gzip)
            inflatedBytes += bytes.count
            guard parts == nil || inflatedBytes <= ImportParts.maximumInflatedBytes else {
                throw ImportError(
                    .broken,
                    "the file inflates to more than 16 GiB; import it in a terminal"
                )
            }
            if !bytes.isEmpty { return bytes }
            let more = try await part()
            if more.isEmpty {
                guard gzip.isAtEnd else { throw Self.damaged }
                return []
            }
            gzip.feed(more)
        }
    }

    private static func inflate(_ gzip: GzipStream) throws(ImportError) -> [UInt8] {
        do throws(CompressionError) {
            return try gzip.next(maximumBytes: partBytes)
        } catch {
            throw error == .broken ? damaged : ImportError(.broken, error.description)
        }
    }

    private static let damaged = ImportError(
        .broken,
        "the gzip file is damaged or ends too early"
    )

    /// Reads the first part, by which gzip is recognized; `nil` if it was read before.
    private func start() async throws(ImportError) -> [UInt8]? {
        guard !isStarted else { return nil }
        isStarted = true
        var first = try await part()
        while first.count < 2 {
            let more = try await part()
            if more.isEmpty { break }
            first += more
        }
        if first.starts(with: Self.gzipMagic) {
            guard let stream = try? GzipStream() else {
                throw ImportError(.unusable, "out of memory")
            }
            gzip = stream
        }
        return first
    }

    private func part() async throws(ImportError) -> [UInt8] {
        if let parts { return try await storedPart(parts) }
        let bytes = unsafe Self.read(Self.partBytes) { buffer in
            unsafe Glibc.read(descriptor, buffer.baseAddress, buffer.count)
        }
        guard let bytes else { throw ImportError(.broken, "the file cannot be read any more") }
        consumed += bytes.count
        return bytes
    }

    private func storedPart(_ parts: ImportParts) async throws(ImportError) -> [UInt8] {
        guard nextPart < parts.count else { return [] }
        let bytes: [UInt8]?
        do {
            bytes = try await parts.read(nextPart)
        } catch {
            throw ImportError(.broken, "the stored file cannot be read: \(error)")
        }
        guard let bytes else {
            throw ImportError(.broken, "the file is not stored any more; upload it again")
        }
        nextPart += 1
        consumed += bytes.count
        return bytes
    }

    /// Returns the first decompressed bytes, which `next` returns again.
    func peek(_ count: Int) async throws(ImportError) -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count {
            let more = try await next()
            if more.isEmpty { break }
            bytes += more
        }
        ahead = bytes
        return bytes
    }

    /// Skips bytes, so that `next` continues at this position. Called after `peek`, before `next`.
    func skip(to position: Int) async throws(ImportError) {
        if position <= ahead.count {
            ahead.removeFirst(position)
            return
        }
        var rest = position - ahead.count
        ahead = []
        if gzip == nil, parts != nil {
            // The parts before are deleted once they are imported.
            nextPart = position / ImportParts.partBytes
            consumed = nextPart * ImportParts.partBytes
            rest = position - consumed
        }
        if gzip == nil, fingerprint != nil {
            guard lseek(descriptor, off_t(position), SEEK_SET) == off_t(position) else {
                throw ImportError(.broken, "the file cannot be read any more")
            }
            consumed = position
            return
        }
        while rest > 0 {
            let bytes = try await next()
            guard !bytes.isEmpty else {
                throw ImportError(.broken, "the file is shorter than before")
            }
            if bytes.count > rest { ahead = Array(bytes[rest...]) }
            rest -= min(rest, bytes.count)
        }
    }
}
