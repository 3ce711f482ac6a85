/// The upload half of Realm's sync protocol, dialects 6 to 14: what an unchanged Realm client needs
/// to send its asymmetric objects, and to learn that they are stored. Bytes in, bytes out.
///
/// Authority: the bytes that a client receives, and the meaning of the bytes that it sends. No
/// socket, no clock, no storage: `RealmConnection` is the state of one WebSocket, `RealmUpload` and
/// `RealmChangeset` decode what came, on any thread.
///
/// A wrong byte ends or empties clients that cannot be repaired. So only messages that do no harm
/// have a type (`ServerMessage`), their codes cannot be chosen, and there is no close code at all: a
/// connection ends by the end of TCP. Numbers in them come from `SyncProgress`, where none can fall.
/// Client versions are acknowledged only after their owner has reported them as stored, in order.
package enum RealmSync {}

/// Bounds of one connection. A client beyond them is disconnected, and keeps its data.
package struct RealmLimits: Sendable {
    /// The limit of one message. A transaction is one message, however large.
    package var messageBytes = 64 << 20
    /// The limit of an upload after decompression. The ratio has no limit: 180 to 1 is usual.
    package var unpackedBytes = 64 << 20
    package var sessions = 1024
    /// Uploads that are received and not stored.
    package var pendingUploads = 256
    /// The changesets of one upload.
    package var changesets = 65_536
    /// The refused objects that are named to the client at a time.
    package var namedRefusals = 64
    package var namedRefusalBytes = 16 << 10

    package init() {}
}

/// Why a connection cannot continue. Safe to log.
package enum RealmFault: Error, Equatable, Sendable, CustomStringConvertible {
    /// The client's message is not one of the protocol.
    case malformed(String)
    /// A message that is valid in another state, or for another session.
    case unexpected(String)
    case tooLarge
    case tooManySessions
    case tooManyUploads
    /// A compressed body is broken, or not as large as it claims.
    case compression

    /// The only two reactions that leave the client's file as it is.
    enum Reaction {
        /// The connection ends without a close frame; the client reconnects after a second.
        case end
        /// The client is asked to reconnect after a pause.
        case backOff
    }

    var reaction: Reaction {
        switch self {
        case .malformed, .unexpected, .tooLarge, .compression: .end
        case .tooManySessions, .tooManyUploads: .backOff
        }
    }

    package var description: String {
        switch self {
        case .malformed(let detail): "a message is malformed: \(detail)"
        case .unexpected(let detail): "a message is unexpected: \(detail)"
        case .tooLarge: "a message exceeds the limit"
        case .tooManySessions: "too many sessions"
        case .tooManyUploads: "too many uploads are not stored"
        case .compression: "a compressed body is broken"
        }
    }
}
