internal import JSON

/// The only messages that a client receives. Others, and other codes, end a client's process, its
/// session, or its data; so they have no form here.
enum ServerMessage {
    case ident(session: Int64, FileIdent)
    case download(session: Int64, Download)
    case mark(session: Int64, request: Int64)
    case unbound(session: Int64)
    case pong(timestamp: Int64)
    case error(ServerError)
    /// A line for the client's own log, since dialect 10.
    case log(session: Int64, String)

    var bytes: [UInt8] {
        switch self {
        case .ident(let session, let ident):
            head("ident", session, ident.ident, ident.salt)
        case .download(let session, let download):
            download.bytes(session)
        case .mark(let session, let request): head("mark", session, request)
        case .unbound(let session): head("unbound", session)
        case .pong(let timestamp): head("pong", timestamp)
        case .error(let error): error.bytes
        case .log(let session, let text): log(session, text)
        }
    }

    private func log(_ session: Int64, _ text: String) -> [UInt8] {
        let body = JSONObject([
            ("level", .string("info")), ("msg", .string(text)), ("co_id", .string("")),
        ]).bytes
        return head("log_message", session, Int64(body.count)) + body
    }
}

private func head(_ word: StaticString, _ numbers: Int64...) -> [UInt8] {
    var bytes = Array("\(word)".utf8)
    for number in numbers {
        bytes.append(UInt8(ascii: " "))
        bytes.append(contentsOf: String(number).utf8)
    }
    bytes.append(UInt8(ascii: "\n"))
    return bytes
}

/// The identity of a client's file. From 2, as 1 is the origin of the changesets that are sent.
struct FileIdent: Equatable {
    let ident: Int64
    let salt: Int64

    /// Makes an identity of random numbers.
    init(random: () -> UInt64) {
        // Of 62 bits each, so both are far from the ends of their range.
        ident = Int64(random() >> 2) + 2
        salt = Int64(random() >> 2) + 1
    }
}

/// A DOWNLOAD. It never contains an instruction.
struct Download {
    enum Content: Equatable {
        /// Ends a bootstrap, or that of a new query. A client loops for ever without its changeset.
        case bootstrap
        /// Acknowledges the client version of the progress.
        case acknowledgement
        /// Acknowledges, and makes the client report the refused objects, which it does after a
        /// changeset of the stated server version.
        case compensation
    }

    let progress: SyncProgress
    let content: Content

    func bytes(_ session: Int64) -> [UInt8] {
        let changeset = changeset
        let batchState: Int64 =
            switch content {
            case .bootstrap: 1
            case .acknowledgement, .compensation: 2
            }
        return head(
            "download",
            session,
            progress.server,
            progress.client,
            progress.server,
            progress.latestSalt,
            progress.client,
            progress.uploadedServer,
            progress.queryVersion,
            batchState,
            0,
            0,
            Int64(changeset.count),
            0
        ) + changeset
    }

    /// An empty changeset, or nothing.
    private var changeset: [UInt8] {
        switch content {
        case .acknowledgement: []
        case .bootstrap, .compensation:
            Array("\(progress.server) \(progress.client) 0 \(progress.originFile) 0 0 ".utf8)
        }
    }
}

/// The errors that leave a client's file as it is, with the session that each needs.
enum ServerError {
    /// The session pauses, and repeats what is not acknowledged.
    case unavailable(session: Int64)
    /// The whole connection pauses, for this many seconds.
    case drain(pause: Int64)
    /// Objects are not stored. The client reports them to the application.
    case refused(session: Int64, Refused)

    struct Refused {
        let objects: [RealmRefusal]
        /// How many more there are.
        let unnamed: Int
        /// The last transaction of those with the objects.
        let clientVersion: Int64
        /// That of the DOWNLOAD which follows.
        let serverVersion: Int64
    }

    var bytes: [UInt8] {
        let (code, session): (Int64, Int64) =
            switch self {
            case .unavailable(let session): (201, session)
            case .drain: (101, 0)
            case .refused(let session, _): (231, session)
            }
        let body = body.bytes
        return head("json_error", code, Int64(body.count), session) + body
    }

    /// All six keys are mandatory, and so are the three of a pause, together.
    private var body: JSONObject {
        switch self {
        case .unavailable: Self.body("unavailable", "Transient", pause: 3)
        case .drain(let pause): Self.body("try again later", "Transient", pause: pause)
        case .refused(_, let refused):
            Self.refused(Self.body(refused.message, "Warning"), refused)
        }
    }

    private static func body(
        _ message: String,
        _ action: String,
        pause seconds: Int64? = nil
    ) -> JSONObject {
        var body: JSONObject = [
            "message": .string(message), "logURL": "", "tryAgain": true, "shouldClientReset": false,
            "isRecoveryModeDisabled": false, "action": .string(action),
        ]
        if let seconds {
            body["backoffIntervalSec"] = .integer(seconds)
            body["backoffMaxDelaySec"] = .integer(max(30, seconds))
            body["backoffMultiplier"] = 2
        }
        return body
    }

    private static func refused(_ body: JSONObject, _ refused: Refused) -> JSONObject {
        var body = body
        body["rejectedUpdates"] = .array(
            refused.objects.map { object in
                [
                    "table": .string(object.className),
                    "pk": .string(object.keyText), "reason": .string(object.reason),
                ]
            }
        )
        body["rejectedClientVersion"] = .integer(refused.clientVersion)
        body["compensatingWriteServerVersion"] = .integer(refused.serverVersion)
        return body
    }
}

extension ServerError.Refused {
    fileprivate var message: String {
        let count = objects.count + unnamed
        let counted = count == 1 ? "one object was not stored" : "\(count) objects were not stored"
        return unnamed > 0 ? counted + "; the first \(objects.count) are named" : counted
    }
}

/// An object that is not stored, as the application learns it.
package struct RealmRefusal: Equatable, Sendable {
    let className: String
    /// The key's encoding in base64. An invalid one would end the client's process, so it is made
    /// only here.
    let keyText: String
    let reason: String

    var byteCount: Int { className.utf8.count + keyText.utf8.count + reason.utf8.count }

    private static let maximumReasonBytes = 512

    /// - Parameters:
    ///   - className: The class of the object.
    ///   - key: Its primary key; a very long one is not sent.
    ///   - reason: A sentence for a developer, cut at 512 bytes.
    package init(className: String, key: RealmKey, reason: String) {
        self.className = className
        let encoded = key.encoded
        keyText = unsafe encoded.withUnsafeBytes { unsafe RealmTexts.base64($0) }
        guard reason.utf8.count > Self.maximumReasonBytes else {
            self.reason = reason
            return
        }
        var cut = ""
        for character in reason.unicodeScalars {
            guard cut.utf8.count + 4 <= Self.maximumReasonBytes else { break }
            cut.unicodeScalars.append(character)
        }
        self.reason = cut
    }
}
