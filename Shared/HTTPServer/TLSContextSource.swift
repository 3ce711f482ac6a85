internal import Glibc
internal import Observability

/// The certificate for new connections: from memory, or from files that are read again when they
/// change. All loops of a server share it, so that a session resumes on any of them.
final class TLSContextSource: @unchecked Sendable {
    private let tls: HTTPServerConfiguration.TLS
    private let log: Log
    private let lock = Lock()
    private var context: TLSContext
    /// The states of the files that the context was made of, and of a later pair that was rejected.
    private var fileState: [FileState]
    private var refusedState: [FileState]?

    /// - Throws: `HTTPServerError` if the certificate cannot be read or used.
    init(_ tls: HTTPServerConfiguration.TLS, log: Log) throws(HTTPServerError) {
        self.tls = tls
        self.log = log
        fileState = Self.fileState(tls.certificate)
        context = try Self.makeContext(tls)
    }

    func makeSession() -> TLSSession? { TLSSession(lock.withLock { context }) }

    /// Checks the files, and uses their contents for new connections. If the certificate and the
    /// key do not match, for example while one of the files is being replaced, nothing changes; the
    /// failure is logged once, and the next call tries again. Blocks; one call at a time.
    func reloadIfChanged() {
        let now = Self.fileState(tls.certificate)
        guard now != fileState else { return }
        do throws(HTTPServerError) {
            let context = try Self.makeContext(tls)
            lock.withLock { self.context = context }
            fileState = now
            refusedState = nil
            log.info("TLS certificate reloaded")
        } catch {
            if now != refusedState {
                log.warning(
                    "TLS certificate not reloaded",
                    [.error: .string(error.description)]
                )
            }
            refusedState = now
        }
    }

    private static func makeContext(
        _ tls: HTTPServerConfiguration.TLS
    ) throws(HTTPServerError) -> TLSContext {
        let certificatePEM: String
        let privateKeyPEM: String
        switch tls.certificate {
        case .pem(let certificate, let privateKey):
            certificatePEM = certificate
            privateKeyPEM = privateKey
        case .files(let certificate, let privateKey):
            certificatePEM = try readText(certificate)
            privateKeyPEM = try readText(privateKey)
        }
        return try TLSContext(
            certificatePEM: certificatePEM,
            privateKeyPEM: privateKeyPEM,
            protocols: tls.applicationProtocols,
            requestsClientCertificate: tls.requestsClientCertificate
        )
    }

    private struct FileState: Equatable {
        let inode: UInt
        let size: Int
        let seconds: Int
        let nanoseconds: Int
    }

    private static func fileState(
        _ certificate: HTTPServerConfiguration.Certificate
    ) -> [FileState] {
        guard case .files(let certificate, let privateKey) = certificate else { return [] }
        return [certificate, privateKey].compactMap { path in
            var found = stat()
            guard unsafe stat(path, &found) == 0 else { return nil }
            return FileState(
                inode: found.st_ino,
                size: found.st_size,
                seconds: found.st_mtim.tv_sec,
                nanoseconds: found.st_mtim.tv_nsec
            )
        }
    }

    private static func readText(_ path: String) throws(HTTPServerError) -> String {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw unreadable(path) }
        defer { close(descriptor) }
        var text: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 16 * 1024)
        while true {
            let count = unsafe read(descriptor, &part, part.count)
            guard count >= 0, text.count + count <= 1024 * 1024 else { throw unreadable(path) }
            if count == 0 { return String(decoding: text, as: UTF8.self) }
            text.append(contentsOf: part[..<count])
        }
    }

    private static func unreadable(_ path: String) -> HTTPServerError {
        HTTPServerError("TLS: cannot read \(path)")
    }
}
