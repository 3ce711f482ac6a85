internal import EventLoop
internal import Observability

/// Watches the disk space of the server. A server whose disk is full still answers reads, so its
/// connections look healthy. The pool is not ready from the first write that fails for lack of disk
/// space until a test write of its own succeeds.
extension PostgresPool {
    static let shortestDiskProbePause: Duration = .seconds(1)
    static let longestDiskProbePause: Duration = .seconds(30)

    /// A write of about 1 MB: small writes may still succeed in pages that have room. It is a
    /// temporary table, so it needs no schema, leaves nothing behind, and writes no WAL for the
    /// caller's tables.
    private static let probe = """
        CREATE TEMPORARY TABLE carillon_disk_probe ON COMMIT DROP AS
        SELECT repeat('x', 1000) FROM generate_series(1, 1024)
        """

    func noteServerError(_ error: PostgresError) {
        guard error.isDiskFull, diskProbe == nil, phase == .open else { return }
        // If the probe's disk has room and the tables' disk has not, the delays grow: a service
        // that becomes ready again and again would get writes that fail.
        let isRepeated = lastDiskRecovery.map { .now - $0 < Self.longestDiskProbePause } ?? false
        diskProbePause =
            isRepeated
            ? min(diskProbePause * 2, Self.longestDiskProbePause) : Self.shortestDiskProbePause
        diskReadiness.value = "postgres: its disk is full (SQLSTATE 53100)"
        log.warning("postgres has no disk space", [.error: .string(error.description)])
        diskProbe = Task(executorPreference: loop) { await self.probeDisk() }
    }

    private func probeDisk() async {
        while phase == .open {
            do { try await loop.sleep(for: diskProbePause) } catch { break }
            if await writeSucceeds() {
                lastDiskRecovery = .now
                diskReadiness.value = nil
                log.info("postgres has disk space again")
                break
            }
        }
        diskProbe = nil
    }

    private func writeSucceeds() async -> Bool {
        do {
            _ = try await transaction(of: [(sql: Self.probe, parameters: [])])
            return true
        } catch let error as PostgresError {
            // The server refused the test write for another reason, such as a missing right to make
            // temporary tables. Then it cannot show that the disk is full.
            return error.kind == .server && !error.isRetryable
        } catch {
            return false
        }
    }
}

extension PostgresError {
    fileprivate var isDiskFull: Bool { sqlState == "53100" }
}
