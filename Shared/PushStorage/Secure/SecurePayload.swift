package import JSON
package import PushCore

/// Content for one identity, as it comes in.
package struct NewSecurePayload: Sendable {
    package enum Content: Sendable {
        /// Sealed by the key ring for `SecurePayload.context`.
        case atRest([UInt8])
        /// Sealed to each of these devices, which alone can open it; at least one.
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

/// Content as one device gets it: what HPKE made of it with the device's key.
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
    /// What content is sealed for (the cipher's associated data): it opens in no other row.
    package static func context(app: String, id: String, identity: String) -> String {
        "secure/\(app)/\(id)/\(identity)"
    }
}

/// By what a backend tells a repeat of its request from another.
package struct SecureRequestKey: Sendable, Equatable {
    package var app: String
    package var key: String
    /// `KeyRing.marks` of the body as it came: a plain digest would outlive the content, and give a short
    /// one away. The first is kept.
    package var bodyMarks: [[UInt8]]

    package init(app: String, key: String, bodyMarks: [[UInt8]]) {
        self.app = app
        self.key = key
        self.bodyMarks = bodyMarks
    }

    /// What its body is marked for.
    package static func context(app: String, key: String) -> String { "secure-key/\(app)/\(key)" }

    private static let hashByteCount = 32

    /// Whether a body with this mark may be the request's own: it is, or it was marked by a key of the
    /// ring that is gone.
    func mayHaveBody(_ mark: [UInt8]) -> Bool {
        let head = mark.dropLast(Self.hashByteCount)
        return bodyMarks.contains(mark)
            || !bodyMarks.contains { $0.dropLast(Self.hashByteCount) == head }
    }
}

/// What the first request of a key was answered.
package struct SecureAnswer: Sendable, Equatable {
    package var id: String
    package var pushID: String
    package var expiresAt: Instant

    package init(id: String, pushID: String, expiresAt: Instant) {
        self.id = id
        self.pushID = pushID
        self.expiresAt = expiresAt
    }
}

/// What is known of a request's key.
package enum KnownSecureKey: Sendable, Equatable {
    case same(SecureAnswer)
    /// It came with another body.
    case otherBody
}

/// What became of content that came in.
package enum KeptSecurePayload: Sendable, Equatable {
    case kept
    /// The id, or the push that it would name, is there already: with another id it may be kept.
    case idTaken
    /// The app's ids are of this form by now.
    case otherForm(SecureIDForm)
    /// Nothing was kept: the key's first request was answered so.
    case repeated(SecureAnswer)
    /// Nothing was kept: the key came with another body before.
    case otherBody
    /// The app is gone, or about to be.
    case noApp
}

/// Who asks for content, once he is proved.
package struct SecureReader: Sendable, Equatable {
    package var app: String
    package var identity: String
    /// The device that proved itself by its secret; its object id.
    package var installation: String?
    /// The device that an identity says it asks from. It counts for what was sealed to a device alone:
    /// of all else the identity is the reader, whatever it says.
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

/// Content that a reader may have.
package struct SecureContent: Sendable, Equatable {
    package var id: String
    package var app: String
    package var identity: String
    package var pushID: String
    /// Under the key ring, or sealed to the device.
    package var bytes: [UInt8]
    package var isSealed: Bool
    /// Whether anybody has read it before.
    package var wasRead: Bool
    /// Whether this reader has: then it needs not be marked again.
    package var isNoted: Bool
    /// Which device reads, for what is written down of it; `nil`: the identity itself.
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

/// Where content stands. The raw values are those of the list.
package enum SecureState: String, Sendable, CaseIterable {
    /// Nobody has read it.
    case waiting
    /// Somebody has, and it is still there.
    case read
    /// It was acknowledged, read once and its grace is over, or the backend has deleted it.
    case deleted
    case expired
}

/// A payload as lists show it: nothing of its content.
package struct SecureEntry: Sendable, Equatable {
    package var id: String
    package var app: String
    package var identity: String
    package var pushID: String
    package var state: SecureState
    /// When it was read first.
    package var readAt: Instant?
    package var createdAt: Instant
    package var expiresAt: Instant
    package var readOnce: Bool
    package var isSealed: Bool

    package var cursor: SecureCursor { SecureCursor(createdAt: createdAt, id: id) }

    /// As the backend's list shows it.
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

/// Where a page of payloads ends, newest first.
package struct SecureCursor: Sendable, Equatable {
    package var createdAt: Instant
    package var id: String

    package init(createdAt: Instant, id: String) {
        self.createdAt = createdAt
        self.id = id
    }

    /// As it goes to a client and comes back.
    package var text: String { "\(createdAt.milliseconds)-\(id)" }

    package init?(_ text: String) {
        let parts = text.split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
        guard text.utf8.count <= 64, parts.count == 2, let milliseconds = Int64(parts[0]),
            milliseconds >= 0, SecureID.isWellFormed(String(parts[1]))
        else { return nil }
        self.init(createdAt: Instant(milliseconds: milliseconds), id: String(parts[1]))
        // Each place is written in one way only.
        guard self.text == text else { return nil }
    }
}
