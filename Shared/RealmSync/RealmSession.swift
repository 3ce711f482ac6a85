/// One file of a client, on a connection that has several.
///
/// States: bound (the client has named the session), active (it has stated its progress), paused (it
/// was asked to pause; only its UNBIND counts).
struct RealmSession {
    enum State {
        case bound
        case active(SyncProgress)
        case paused
    }

    private struct Pending {
        let number: UInt64
        /// `nil` until its transactions are durable.
        var stored: [RealmStored]?
    }

    private let session: Int64
    private var state = State.bound
    /// The uploads in their order.
    private var pending: [Pending] = []

    init(_ session: Int64) { self.session = session }

    var pendingCount: Int { pending.count }

    var isPaused: Bool {
        if case .paused = state { return true }
        return false
    }

    /// Begins: a client without a server version gets the end of a bootstrap.
    mutating func begin(
        _ stated: ClientProgress,
        random: () -> UInt64
    ) throws(RealmFault) -> [ServerMessage] {
        guard case .bound = state else { throw .unexpected("ident") }
        var progress = SyncProgress(stated, random: random)
        defer { state = .active(progress) }
        guard stated.downloadServer == 0 else { return [] }
        progress.advance()
        return [download(progress, .bootstrap)]
    }

    mutating func query(_ version: Int64) throws(RealmFault) -> [ServerMessage] {
        var progress = try active("query")
        guard progress.advance(query: version) else { throw .unexpected("query version") }
        state = .active(progress)
        return [download(progress, .bootstrap)]
    }

    func mark(_ request: Int64) throws(RealmFault) -> [ServerMessage] {
        _ = try active("mark")
        return [.mark(session: session, request: request)]
    }

    func requireActive(_ word: String) throws(RealmFault) { _ = try active(word) }

    mutating func add(upload number: UInt64) throws(RealmFault) {
        try requireActive("upload")
        pending.append(Pending(number: number))
    }

    private func active(_ word: String) throws(RealmFault) -> SyncProgress {
        guard case .active(let progress) = state else { throw .unexpected(word) }
        return progress
    }

    mutating func pause() -> [ServerMessage] {
        guard case .active = state else { return [] }
        state = .paused
        pending = []
        return [.error(.unavailable(session: session))]
    }

    // MARK: Acknowledgement

    /// Notes that uploads are durable, and acknowledges everything before the first one that is not,
    /// by few messages, however many transactions these are: a client reads only between its uploads.
    mutating func stored(
        _ uploads: [(number: UInt64, changesets: [RealmStored])],
        limits: RealmLimits,
        hasLog: Bool
    ) throws(RealmFault) -> [ServerMessage] {
        guard case .active(var progress) = state else { return [] }
        for upload in uploads {
            guard let place = pending.firstIndex(where: { $0.number == upload.number }) else {
                continue
            }
            pending[place].stored = upload.changesets
        }
        var report = StoredReport(after: progress.client, limits)
        while let stored = pending.first?.stored {
            pending.removeFirst()
            for changeset in stored {
                guard report.add(changeset), changeset.serverVersion <= progress.server else {
                    throw .malformed("upload's versions")
                }
            }
        }
        guard let last = report.last else { return [] }
        progress.acknowledge(last.version, serverVersion: last.serverVersion)
        state = .active(progress)
        var messages: [ServerMessage] = []
        if hasLog, let text = report.unreadableText {
            messages.append(.log(session: session, text))
        }
        guard let refused = report.refused(serverVersion: progress.server) else {
            return messages + [download(progress, .acknowledgement)]
        }
        // The client reports the objects after the changeset of this server version.
        return messages + [
            .error(.refused(session: session, refused)), download(progress, .compensation),
        ]
    }

    private func download(
        _ progress: SyncProgress,
        _ content: Download.Content
    ) -> ServerMessage {
        .download(session: session, Download(progress: progress, content: content))
    }
}

/// The report of durable transactions to their client. Its size is bounded.
private struct StoredReport {
    private let limits: RealmLimits
    private var version: Int64
    private(set) var last: RealmStored?
    private var named: [RealmRefusal] = []
    private var namedBytes = 0
    private var refusals = 0
    private var unreadable = 0
    private var firstUnreadable: Int64 = 0

    init(after version: Int64, _ limits: RealmLimits) {
        (self.version, self.limits) = (version, limits)
    }

    /// - Returns: False if its version is not the highest.
    mutating func add(_ changeset: RealmStored) -> Bool {
        guard changeset.version > version else { return false }
        (version, last) = (changeset.version, changeset)
        if changeset.isUnreadable {
            if unreadable == 0 { firstUnreadable = changeset.version }
            unreadable += 1
        }
        refusals += changeset.refused.count
        for refusal in changeset.refused {
            let bytes = refusal.byteCount
            guard named.count < limits.namedRefusals,
                named.isEmpty || namedBytes + bytes <= limits.namedRefusalBytes
            else { break }
            named.append(refusal)
            namedBytes += bytes
        }
        return true
    }

    var unreadableText: String? {
        switch unreadable {
        case 0: nil
        case 1: "transaction \(firstUnreadable) cannot be read, and is not stored"
        default:
            "\(unreadable) transactions from \(firstUnreadable) on cannot be read, and are not stored"
        }
    }

    func refused(serverVersion: Int64) -> ServerError.Refused? {
        guard refusals > 0 else { return nil }
        return ServerError.Refused(
            objects: named,
            unnamed: refusals - named.count,
            clientVersion: version,
            serverVersion: serverVersion
        )
    }
}
