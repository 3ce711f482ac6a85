package import JSON
package import PushCore
import Storage

/// New content for one identity.
package struct NewSecurePayload: Sendable {
    package enum Content: Sendable {
        /// Sealed by the key ring for `SecurePayload.context`.
        case atRest([UInt8])
        /// Sealed to each of these devices, and readable only by them; at least one.
        case forDevices([SealedCopy])
    }

    /// Well-formed, and of the app's form.
    package var id: String
    package var app: String
    package var identity: String
    package var expiresAt: Instant
    package var readOnce: Bool
    package var content: Content

    package init(
        id: String,
        app: String,
        identity: String,
        expiresAt: Instant,
        readOnce: Bool,
        content: Content
    ) {
        self.id = id
        self.app = app
        self.identity = identity
        self.expiresAt = expiresAt
        self.readOnce = readOnce
        self.content = content
    }
}

/// Content sealed to one device: encrypted by HPKE with the device's key.
package struct SealedCopy: Sendable, Equatable {
    /// The object id.
    package var installation: String
    package var bytes: [UInt8]

    package init(installation: String, bytes: [UInt8]) {
        self.installation = installation
        self.bytes = bytes
    }
}

package enum SecurePayload {
    /// Returns the context that content is sealed for (the cipher's associated data): it opens in no other row.
    package static func context(app: String, id: String, identity: String) -> String {
        "secure/\(app)/\(id)/\(identity)"
    }
}

/// The key by which a backend marks repeats of its request.
package struct IdempotencyKey: Sendable, Equatable {
    package var app: String
    package var key: String
    /// `KeyRing.marks` of the unchanged body: a plain digest would outlive the content, and reveal a
    /// short one. The first is stored.
    package var bodyMarks: [[UInt8]]

    package init(app: String, key: String, bodyMarks: [[UInt8]]) {
        self.app = app
        self.key = key
        self.bodyMarks = bodyMarks
    }

    /// Returns the context of its body's marks.
    package static func context(app: String, key: String) -> String { "secure-key/\(app)/\(key)" }

    private static let hashByteCount = 32

    /// Whether a body with this mark may be the request's own: the mark is equal, or was made by a key
    /// that is not in the ring any more.
    func mayHaveBody(_ mark: [UInt8]) -> Bool {
        let head = mark.dropLast(Self.hashByteCount)
        return bodyMarks.contains(mark)
            || !bodyMarks.contains { $0.dropLast(Self.hashByteCount) == head }
    }
}

/// The response to the first request of a key.
package struct IdempotentResponse: Sendable, Equatable {
    package var id: String
    package var pushID: String
    package var expiresAt: Instant

    package init(id: String, pushID: String, expiresAt: Instant) {
        self.id = id
        self.pushID = pushID
        self.expiresAt = expiresAt
    }
}

/// The result of looking up a request's key.
package enum IdempotencyResult: Sendable, Equatable {
    case same(IdempotentResponse)
    /// The key was used with another body.
    case otherBody
}

/// The result of storing content.
package enum SecurePayloadResult: Sendable, Equatable {
    case stored
    /// The id, or the id of its push, is in use: another id may work.
    case idTaken
    /// The form of the app's ids has changed to this one.
    case otherForm(SecureIDForm)
    /// Nothing was stored: the key's first request had this response.
    case repeated(IdempotentResponse)
    /// Nothing was stored: the key was used with another body.
    case otherBody
    /// The app was deleted, or is being deleted.
    case noApp
}

/// An authenticated reader of content.
package struct SecureReader: Sendable, Equatable {
    package var app: String
    package var identity: String
    /// The device that authenticated by its secret; its object id.
    package var installation: String?
    /// The device that an identity claims to use. It only counts for content that was sealed to a
    /// device: for all other content the identity is the reader.
    package var named: String?

    package init(
        app: String,
        identity: String,
        installation: String? = nil,
        named: String? = nil
    ) {
        self.app = app
        self.identity = identity
        self.installation = installation
        self.named = named
    }
}

/// Content for a reader.
package struct SecureContent: Sendable, Equatable {
    package var id: String
    package var app: String
    package var identity: String
    package var pushID: String
    /// Sealed under the key ring, or to the device.
    package var bytes: [UInt8]
    package var isSealed: Bool
    /// Whether any reader has read it before.
    package var wasRead: Bool
    /// Whether this reader has: then it need not be marked again.
    package var isNoted: Bool
    /// The reading device, for the record of the read; `nil`: the identity itself.
    package var device: String?

    package init(
        id: String,
        app: String,
        identity: String,
        pushID: String,
        bytes: [UInt8],
        isSealed: Bool = false,
        wasRead: Bool = false,
        isNoted: Bool = false,
        device: String? = nil
    ) {
        self.id = id
        self.app = app
        self.identity = identity
        self.pushID = pushID
        self.bytes = bytes
        self.isSealed = isSealed
        self.wasRead = wasRead
        self.isNoted = isNoted
        self.device = device
    }

    package var context: String {
        SecurePayload.context(app: app, id: id, identity: identity)
    }
}

/// The state of content. The raw values are those of the list.
package enum SecureState: String, Sendable, CaseIterable {
    /// It was not read yet.
    case waiting
    /// It was read, and still exists.
    case read
    /// It was acknowledged, read once and its grace period has ended, or the backend has deleted it.
    case deleted
    case expired
}

/// A payload as lists show it, without its content.
package struct SecureEntry: Sendable, Equatable {
    package var id: String
    package var app: String
    package var identity: String
    package var pushID: String
    package var state: SecureState
    /// The time of its first read.
    package var readAt: Instant?
    package var createdAt: Instant
    package var expiresAt: Instant
    package var readOnce: Bool
    package var isSealed: Bool

    package var cursor: SecureCursor { SecureCursor(createdAt: createdAt, id: id) }

    /// The entry as the backend's list shows it.
    package var json: JSONObject {
        [
            "Id": SecureID.json(id), "identity": .string(identity), "pushId": .string(pushID),
            "state": .string(state.rawValue), "Read": .bool(readAt != nil),
            "readAt": readAt.map { .string($0.iso8601) } ?? .null,
            "createdAt": .string(createdAt.iso8601), "expiresAt": .string(expiresAt.iso8601),
            "readOnce": .bool(readOnce), "sealed": .bool(isSealed),
        ]
    }
}

/// The end of a page of payloads, newest first.
package struct SecureCursor: Sendable, Equatable {
    package var createdAt: Instant
    package var id: String

    package init(createdAt: Instant, id: String) {
        self.createdAt = createdAt
        self.id = id
    }

    /// The form that is sent to a client and comes back.
    package var text: String { "\(createdAt.milliseconds)-\(id)" }

    package init?(_ text: String) {
        let parts = text.split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
        guard text.utf8.count <= 64, parts.count == 2, let milliseconds = Int64(parts[0]),
            milliseconds >= 0, SecureID.isWellFormed(String(parts[1]))
        else { return nil }
        self.init(createdAt: Instant(milliseconds: milliseconds), id: String(parts[1]))
        // Each cursor is written in one way only.
        guard self.text == text else { return nil }
    }
}
