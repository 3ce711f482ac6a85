import CPQ
import Glibc

/// Sole owner of one `PGconn *`; `PQfinish` runs when the object dies. Confined to one thread at a
/// time: a thread of libuv's pool makes it, and then only its loop uses it. Only
/// `init(connecting:applicationName:)` blocks.
@safe
final class ConnectionHandle: @unchecked Sendable {
    private let pointer: OpaquePointer

    /// Begins to connect. Blocks: it resolves names and reads certificates.
    ///
    /// - Throws: `PostgresError.connect`, also for an invalid URI.
    init(connecting uri: String, applicationName: String) throws(PostgresError) {
        // Of two values the later wins: the URI (`dbname`) overrides the defaults before it, but
        // not the encoding after it.
        let parameters = [
            ("fallback_application_name", applicationName), ("keepalives_idle", "10"),
            ("keepalives_interval", "5"), ("keepalives_count", "3"),
            ("tcp_user_timeout", "15000"),
            // If the URI lists several hosts: the primary, not a standby.
            ("target_session_attrs", "read-write"), ("dbname", uri), ("client_encoding", "UTF8"),
        ]
        let made = unsafe withCStrings(parameters.map(\.0)) { keywords in
            unsafe withCStrings(parameters.map(\.1)) { values in
                unsafe PQconnectStartParams(keywords, values, 1)
            }
        }
        guard let made = unsafe made else {
            throw PostgresError(.connect, "cannot connect to Postgres: out of memory")
        }
        unsafe pointer = made
        if unsafe PQstatus(pointer) == CONNECTION_BAD { throw .connect(libpq: errorText) }
        // Notices are for terminals; libpq's default writes them to standard error.
        unsafe PQsetNoticeReceiver(pointer, { _, _ in }, nil)
    }

    deinit { unsafe PQfinish(pointer) }

    enum Step { case readable, writable, connected, failed }

    /// Continues to connect. The descriptor may change with each call: stop watching it before the
    /// call.
    func pollConnecting() -> Step {
        switch unsafe PQconnectPoll(pointer) {
        case PGRES_POLLING_READING: return .readable
        case PGRES_POLLING_WRITING: return .writable
        case PGRES_POLLING_OK: return .connected
        default: return .failed
        }
    }

    var descriptor: Int32 { unsafe PQsocket(pointer) }
    var errorText: String {
        unsafe PQerrorMessage(pointer).map { unsafe String(cString: $0) } ?? ""
    }
    var usesTLS: Bool { unsafe PQsslInUse(pointer) != 0 }
    /// False once libpq has found that the connection is gone. libpq then closes the socket without
    /// any other notice, even during a write.
    var isAlive: Bool { unsafe PQstatus(pointer) != CONNECTION_BAD }
    var isBusy: Bool { unsafe PQisBusy(pointer) != 0 }
    /// Whether the connection is outside any transaction, with no statement being sent.
    var isIdle: Bool { unsafe PQtransactionStatus(pointer) == PQTRANS_IDLE }

    func setNonblocking() -> Bool { unsafe PQsetnonblocking(pointer, 1) == 0 }
    func enterPipeline() -> Bool { unsafe PQenterPipelineMode(pointer) == 1 }
    /// Leaves pipeline mode; works only if nothing is in flight.
    func exitPipeline() -> Bool { unsafe PQexitPipelineMode(pointer) == 1 }
    func sendSync() -> Bool { unsafe PQpipelineSync(pointer) == 1 }
    func consumeInput() -> Bool { unsafe PQconsumeInput(pointer) == 1 }
    func setSingleRowMode() -> Bool { unsafe PQsetSingleRowMode(pointer) == 1 }

    enum Flush { case done, more, failed }

    func flush() -> Flush {
        switch unsafe PQflush(pointer) {
        case 0: return .done
        case 1: return .more
        default: return .failed
        }
    }

    func nextResult() -> ResultHandle? {
        guard let result = unsafe PQgetResult(pointer) else { return nil }
        return unsafe ResultHandle(adopting: result)
    }

    // MARK: Sending

    func sendScript(_ sql: String) -> Bool { unsafe PQsendQuery(pointer, sql) == 1 }

    /// Prepares a statement for the given parameter types; for a 0 the server infers the type.
    func sendPrepare(name: String, sql: String, _ types: [UInt32]) -> Bool {
        unsafe types.withUnsafeBufferPointer { types in
            unsafe PQsendPrepare(pointer, name, sql, Int32(types.count), types.baseAddress) == 1
        }
    }

    func sendPrepared(name: String, _ parameters: EncodedParameters) -> Bool {
        unsafe parameters.withPointers { count, values, lengths, formats in
            unsafe PQsendQueryPrepared(pointer, name, count, values, lengths, formats, 0) == 1
        }
    }

    /// Sends one statement that is parsed each time.
    func send(_ sql: String, _ parameters: EncodedParameters) -> Bool {
        unsafe parameters.types.withUnsafeBufferPointer { types in
            unsafe parameters.withPointers { count, values, lengths, formats in
                unsafe PQsendQueryParams(
                    pointer,
                    sql,
                    count,
                    types.baseAddress,
                    values,
                    lengths,
                    formats,
                    0
                ) == 1
            }
        }
    }

    // MARK: COPY

    func putCopyData(_ bytes: [UInt8]) -> Bool {
        unsafe bytes.withUnsafeBytes { buffer in
            let start = unsafe buffer.baseAddress?.assumingMemoryBound(to: CChar.self)
            return unsafe PQputCopyData(pointer, start, Int32(buffer.count)) == 1
        }
    }

    /// Ends a COPY FROM; a `refusal` makes the server fail it.
    func endCopy(refusal: String?) -> Bool {
        if let refusal { return unsafe PQputCopyEnd(pointer, refusal) == 1 }
        return unsafe PQputCopyEnd(pointer, nil) == 1
    }

    enum CopyData {
        /// One message was passed on.
        case data
        case wait
        case end
        case failed
    }

    /// Passes the next message of a COPY TO to `body`, which must copy the bytes it needs.
    func getCopyData(_ body: (UnsafeRawBufferPointer) -> Void) -> CopyData {
        var buffer: UnsafeMutablePointer<CChar>?
        let count = unsafe PQgetCopyData(pointer, &buffer, 1)
        if count > 0, let start = unsafe buffer {
            unsafe body(UnsafeRawBufferPointer(start: start, count: Int(count)))
            unsafe PQfreemem(start)
            return .data
        }
        switch count {
        case 0: return .wait
        case -1: return .end
        default: return .failed
        }
    }

    // MARK: Notifications and cancellation

    /// Returns the next notification's channel and payload.
    func nextNotification() -> (channel: String, payload: String)? {
        guard let notification = unsafe PQnotifies(pointer) else { return nil }
        defer { unsafe PQfreemem(notification) }
        let payload = unsafe notification.pointee.extra.map { unsafe String(cString: $0) }
        return unsafe (String(cString: notification.pointee.relname), payload ?? "")
    }

    /// Makes the handle for one `PQcancel`.
    func makeCancellation() -> Cancellation? {
        unsafe PQgetCancel(pointer).map { unsafe Cancellation(adopting: $0) }
    }
}

/// Sole owner of one `PGcancel *`. Thread-safe.
@safe
final class Cancellation: @unchecked Sendable {
    private let pointer: OpaquePointer

    init(adopting pointer: OpaquePointer) { unsafe self.pointer = pointer }
    deinit { unsafe PQfreeCancel(pointer) }

    /// Asks the server to end the running statement; does not block.
    ///
    /// `PQcancel` opens a separate connection and waits until the server closes it: 2 ms, or for
    /// ever if the server hangs. So each call gets a new thread, not one of libuv's few. A
    /// connection has at most one such thread at a time.
    ///
    /// - Parameter sent: Called on that thread, whatever the result.
    func request(_ sent: @escaping @Sendable () -> Void) {
        let work = unsafe Unmanaged.passRetained(CancellationWork(self, sent))
        var thread = pthread_t()
        let status = unsafe pthread_create(
            &thread,
            nil,
            { context in
                guard let context = unsafe context else { return nil }
                let work = unsafe Unmanaged<CancellationWork>.fromOpaque(context)
                    .takeRetainedValue()
                work.cancellation.requestBlocking()
                work.sent()
                return nil
            },
            work.toOpaque()
        )
        if status == 0 {
            pthread_detach(thread)
        } else {
            unsafe work.takeRetainedValue().sent()
        }
    }

    private func requestBlocking() {
        var text = [CChar](repeating: 0, count: 256)
        _ = unsafe text.withUnsafeMutableBufferPointer { buffer in
            unsafe PQcancel(pointer, buffer.baseAddress, Int32(buffer.count))
        }
    }

    private final class CancellationWork {
        let cancellation: Cancellation
        let sent: @Sendable () -> Void

        init(_ cancellation: Cancellation, _ sent: @escaping @Sendable () -> Void) {
            self.cancellation = cancellation
            self.sent = sent
        }
    }
}

/// A statement's parameters, in one block that libpq reads once. One instance is reused for
/// statement after statement, so that a statement costs no allocation.
struct EncodedParameters {
    private var bytes: [UInt8] = []
    private var starts: [Int] = []
    private var lengths: [Int32] = []
    private var formats: [Int32] = []
    /// The type of each parameter; 0: the server infers it from the statement.
    private(set) var types: [UInt32] = []

    mutating func clear() {
        // The memory for one statement of many megabytes is not retained for the next.
        bytes.removeAll(keepingCapacity: bytes.capacity <= 1 << 20)
        starts.removeAll(keepingCapacity: true)
        lengths.removeAll(keepingCapacity: true)
        formats.removeAll(keepingCapacity: true)
        types.removeAll(keepingCapacity: true)
    }

    /// Replaces the previous values.
    ///
    /// - Throws: `PostgresError.encoding`.
    mutating func encode(_ values: [PostgresValue]) throws(PostgresError) {
        clear()
        guard values.count <= 65_535 else {
            throw PostgresError(.encoding, "a statement takes at most 65,535 parameters")
        }
        for value in values {
            let start = bytes.count
            if try value.write(into: &bytes) {
                starts.append(start)
                guard let length = Int32(exactly: bytes.count - start), length < 1 << 30 else {
                    throw PostgresError(.encoding, "a parameter is larger than 1 GiB")
                }
                lengths.append(length)
                bytes.append(0)
            } else {
                starts.append(-1)
                lengths.append(0)
            }
            formats.append(value.isBinary ? 1 : 0)
            types.append(value.type)
        }
    }

    func withPointers(
        _ body: (
            Int32, UnsafePointer<UnsafePointer<CChar>?>?, UnsafePointer<Int32>?,
            UnsafePointer<Int32>?
        ) -> Bool
    ) -> Bool {
        unsafe bytes.withUnsafeBytes { buffer in
            let base = unsafe buffer.baseAddress?.assumingMemoryBound(to: CChar.self)
            return unsafe withUnsafeTemporaryAllocation(
                of: UnsafePointer<CChar>?.self,
                capacity: starts.count
            ) { values in
                for (index, start) in starts.enumerated() {
                    unsafe values[index] = start < 0 ? nil : base.map { unsafe $0 + start }
                }
                return unsafe lengths.withUnsafeBufferPointer { lengths in
                    unsafe formats.withUnsafeBufferPointer { formats in
                        unsafe body(
                            Int32(values.count),
                            UnsafePointer(values.baseAddress),
                            lengths.baseAddress,
                            formats.baseAddress
                        )
                    }
                }
            }
        }
    }
}

/// Passes C an array of strings that ends with NULL.
private func withCStrings<Result>(
    _ strings: [String],
    _ body: (UnsafePointer<UnsafePointer<CChar>?>?) -> Result
) -> Result {
    var bytes: [UInt8] = []
    var starts: [Int] = []
    for string in strings {
        starts.append(bytes.count)
        bytes.append(contentsOf: string.utf8)
        bytes.append(0)
    }
    return unsafe bytes.withUnsafeBytes { buffer in
        let base = unsafe buffer.baseAddress?.assumingMemoryBound(to: CChar.self)
        var pointers = unsafe starts.map { start in
            unsafe base.map { unsafe UnsafePointer($0 + start) }
        }
        unsafe pointers.append(nil)
        return unsafe pointers.withUnsafeBufferPointer { unsafe body($0.baseAddress) }
    }
}

extension PostgresConfiguration {
    /// Validates a connection URI without connecting. Returns an error text that quotes no part of
    /// the URI; `nil` if libpq can read the URI and its ports are valid.
    package static func problem(ofURI uri: String) -> String? {
        let expected = "it takes postgresql://user:password@host:5432/database"
        // libpq's error text may contain the password, so it is freed unread.
        var error: UnsafeMutablePointer<CChar>?
        let options = unsafe PQconninfoParse(uri, &error)
        unsafe PQfreemem(error)
        guard let options = unsafe options else {
            return "is no URI that libpq can read; \(expected)"
        }
        defer { unsafe PQconninfoFree(options) }
        var option = unsafe options
        while let keyword = unsafe option.pointee.keyword {
            defer { unsafe option += 1 }
            guard unsafe String(cString: keyword) == "port", let value = unsafe option.pointee.val
            else { continue }
            let ports = unsafe String(cString: value).split(
                separator: ",",
                omittingEmptySubsequences: true
            )
            guard ports.allSatisfy({ UInt16($0) ?? 0 > 0 }) else {
                return "has an invalid port; \(expected)"
            }
        }
        return nil
    }
}
