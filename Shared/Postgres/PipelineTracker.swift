/// Tracks the commands sent down a pipeline and their answers, group by group. Pure: no socket, no
/// clock.
///
/// A group is the commands between two Syncs: one implicit transaction. A failure undoes the
/// earlier statements of its group, so no member gets its result before the server has answered the
/// Sync. In a failed group at most one member is guilty, as its own statement failed; the others
/// are innocent and may run again.
struct PipelineTracker<Member> {
    enum Command {
        /// A Parse on behalf of the member that follows.
        case prepare(sql: String)
        case member(Member)
        /// A DEALLOCATE, by the statement's name.
        case deallocate(String)
        case sync
    }

    enum Answer {
        case done(PostgresResult)
        case failed(PostgresError)
        case aborted
    }

    enum Verdict {
        case answered(PostgresResult)
        case guilty(PostgresError)
        /// Undone by the error of another member, or by an error that belongs to no member.
        case innocent(PostgresError)
    }

    /// A change that the connection must note at once, as prepared statements outlive a rollback.
    enum Note: Equatable {
        case nothing
        case prepared(sql: String)
        case notPrepared(sql: String)
        case notDeallocated(String)
        /// An answer without a matching command: client and server are out of step.
        case outOfStep
    }

    private var commands: [Command] = []
    private var head = 0

    // The group whose answers are arriving.
    private var answers: [(member: Member, result: PostgresResult?)] = []
    private var failure: PostgresError?
    private var guilty: Int?
    private var nextIsAnswered = false

    var isEmpty: Bool { head == commands.count }
    /// The number of unanswered commands.
    var count: Int { commands.count - head }
    /// The command whose answer comes next.
    var next: Command? { isEmpty ? nil : commands[head] }

    mutating func sent(_ command: Command) { commands.append(command) }

    /// Notes the next command's result.
    mutating func received(_ answer: Answer) -> Note {
        guard let command = next else { return .outOfStep }
        nextIsAnswered = true
        if case .failed(let error) = answer, failure == nil {
            failure = error
            switch command {
            case .prepare, .member: guilty = answers.count
            case .deallocate, .sync: guilty = nil
            }
        }
        switch (command, answer) {
        case (.prepare(let sql), .done): return .prepared(sql: sql)
        case (.prepare(let sql), _): return .notPrepared(sql: sql)
        case (.deallocate, .done): return .nothing
        case (.deallocate(let name), _): return .notDeallocated(name)
        case (.member(let member), .done(let result)):
            answers.append((member, result))
            return .nothing
        case (.member(let member), _):
            answers.append((member, nil))
            return .nothing
        case (.sync, .failed):
            // The commit itself failed, as with a deferred constraint.
            return .nothing
        case (.sync, _): return .outOfStep
        }
    }

    /// Notes that all results of the next command have arrived.
    mutating func commandEnded() {
        guard let command = next, nextIsAnswered else { return }
        if case .sync = command { return }
        advance()
    }

    /// Notes that the server has answered the next Sync: the group is committed or rolled back.
    ///
    /// - Returns: Each member with its verdict; nil if the answers do not match the commands.
    mutating func synced() -> [(member: Member, verdict: Verdict)]? {
        guard case .sync? = next else { return nil }
        advance()
        defer {
            answers.removeAll(keepingCapacity: true)
            failure = nil
            guilty = nil
        }
        if let failure {
            let guilty = guilty ?? (answers.count == 1 ? 0 : nil)
            return answers.enumerated().map { index, answer in
                (answer.member, index == guilty ? .guilty(failure) : .innocent(failure))
            }
        }
        let verdicts = answers.compactMap { answer in
            answer.result.map { (member: answer.member, verdict: Verdict.answered($0)) }
        }
        return verdicts.count == answers.count ? verdicts : nil
    }

    /// Whether a wanted member is in the oldest group, which the server may be working on now.
    func isInOldestGroup(where isWanted: (Member) -> Bool) -> Bool {
        if answers.contains(where: { isWanted($0.member) }) { return true }
        for command in commands[head...] {
            switch command {
            case .member(let member) where isWanted(member): return true
            case .sync: return false
            case .member, .prepare, .deallocate: continue
            }
        }
        return false
    }

    /// Ends the tracking after the connection broke.
    ///
    /// - Returns: Every member without a result.
    mutating func abandon() -> [Member] {
        var members = answers.map(\.member)
        for case .member(let member) in commands[head...] { members.append(member) }
        self = PipelineTracker()
        return members
    }

    private mutating func advance() {
        nextIsAnswered = false
        head += 1
        if head == commands.count {
            commands.removeAll(keepingCapacity: true)
            head = 0
        } else if head >= 1024, head * 2 >= commands.count {
            commands.removeFirst(head)
            head = 0
        }
    }
}
