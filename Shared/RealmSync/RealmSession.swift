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

    /// Notes that an upload is durable, and acknowledges everything before the first one that is
    /// not.
    mutating func stored(
        _ number: UInt64,
        _ changesets: [RealmStored],
        limits: RealmLimits,
        hasLog: Bool
    ) throws(RealmFault) -> [ServerMessage] {
        guard case .active(var progress) = state,
            let place = pending.firstIndex(where: { $0.number == number })
        else { return [] }
        pending[place].stored = changesets
        var messages: [ServerMessage] = []
        var last: RealmStored?
        while let stored = pending.first?.stored {
            pending.removeFirst()
            for changeset in stored {
                guard changeset.version > last?.version ?? progress.client,
                    changeset.serverVersion <= progress.server
                else { throw .malformed("upload's versions") }
                if changeset.isUnreadable, hasLog {
                    let text = "transaction \(changeset.version) cannot be read, and is not stored"
                    messages.append(.log(session: session, text))
                }
                guard !changeset.refused.isEmpty else {
                    last = changeset
                    continue
                }
                last = nil
                messages += refuse(changeset, &progress, limits)
            }
        }
        if let last {
            progress.acknowledge(last.version, serverVersion: last.serverVersion)
            messages.append(download(progress, .acknowledgement))
        }
        state = .active(progress)
        return messages
    }

    /// Reports refused objects, and acknowledges their transaction with those before it. Each report
    /// has a server version of its own.
    private func refuse(
        _ changeset: RealmStored,
        _ progress: inout SyncProgress,
        _ limits: RealmLimits
    ) -> [ServerMessage] {
        progress.acknowledge(changeset.version, serverVersion: changeset.serverVersion)
        let named = Array(changeset.refused.prefix(limits.namedRefusals))
        let refused = ServerError.Refused(
            objects: named,
            unnamed: changeset.refused.count - named.count,
            clientVersion: changeset.version,
            serverVersion: progress.server
        )
        return [
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
