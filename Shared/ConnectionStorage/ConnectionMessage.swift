import Cryptography
package import JSON
package import PushCore

/// A message to be stored for one device.
package struct NewMessage: Sendable, Equatable {
    /// The parts that all devices of a push and a language share.
    package struct Content: Sendable, Hashable {
        package var app: String
        package var pushID: String
        package var eventID: String
        /// The push's `data` for this platform, JSON.
        package var body: [UInt8]
        /// The channels that the push names.
        package var channels: [String]

        package init(
            app: String,
            pushID: String,
            eventID: String,
            body: [UInt8],
            channels: [String] = []
        ) {
            self.app = app
            self.pushID = pushID
            self.eventID = eventID
            self.body = body
            self.channels = channels
        }

        /// Tells the contents of one push apart.
        var digest: [UInt8] { Array(sha256(body).prefix(16)) }
    }

    package var content: Content
    package var device: DeviceKey
    /// Lower-case UUID, the same on every attempt of the delivery.
    package var id: String
    /// The installation's object id, as the ledger has it.
    package var target: String
    /// A later message with the same one replaces it while it waits.
    package var collapseID: String?
    /// The push's own expiry.
    package var expiresAt: Instant?

    package init(
        _ content: Content,
        for device: DeviceKey,
        id: String,
        target: String,
        collapseID: String? = nil,
        expiresAt: Instant? = nil
    ) {
        self.content = content
        self.device = device
        self.id = id
        self.target = target
        self.collapseID = collapseID
        self.expiresAt = expiresAt
    }
}

/// The content that messages of one push share.
package final class MessageContent: Sendable {
    /// The row; equal for messages that share it.
    package let identity: Int
    package let app: String
    package let pushID: String
    package let eventID: String
    /// The push's `data` for this platform.
    package let data: JSONObject
    /// `data` as JSON text.
    package let text: [UInt8]

    package init(
        identity: Int,
        app: String,
        pushID: String,
        eventID: String,
        text: [UInt8]
    ) {
        self.identity = identity
        self.app = app
        self.pushID = pushID
        self.eventID = eventID
        self.text = text
        data = (try? JSONValue.parse(text))?.object ?? [:]
    }

    /// The approximate bytes of memory: a JSON value needs up to 24 times the bytes of its text.
    var weightBytes: Int { 512 + text.count * 24 }
}

/// A stored message that its device has not acknowledged yet.
package struct WaitingMessage: Sendable {
    package var device: DeviceKey
    /// The same on every repeat.
    package var id: String
    /// Ascending is oldest first.
    package var sequence: Int
    /// The installation's object id, as the ledger has it.
    package var target: String
    package var storedAt: Instant
    package var expiresAt: Instant
    /// Whether the push itself has an expiry.
    package var hasOwnExpiry: Bool
    /// The first of the push's channels that the installation has.
    package var channel: String?
    /// Whether more messages of the device wait than were read, as these have enough bytes.
    package var isCut: Bool
    package var content: MessageContent

    package init(
        device: DeviceKey,
        id: String,
        sequence: Int,
        target: String,
        storedAt: Instant,
        expiresAt: Instant,
        hasOwnExpiry: Bool = false,
        channel: String? = nil,
        isCut: Bool = false,
        content: MessageContent
    ) {
        self.isCut = isCut
        self.device = device
        self.id = id
        self.sequence = sequence
        self.target = target
        self.storedAt = storedAt
        self.expiresAt = expiresAt
        self.hasOwnExpiry = hasOwnExpiry
        self.channel = channel
        self.content = content
    }

    package var app: String { content.app }
    package var pushID: String { content.pushID }
    package var eventID: String { content.eventID }
}

/// An acknowledged message.
package struct MessageAck: Sendable, Hashable {
    package var device: DeviceKey
    package var id: String
    package var app: String
    package var pushID: String
    package var eventID: String
    package var target: String

    package init(_ message: WaitingMessage) {
        device = message.device
        id = message.id
        app = message.app
        pushID = message.pushID
        eventID = message.eventID
        target = message.target
    }
}

/// Where the messages of an app went: `kept = received + displaced + expired + waiting`.
package struct ConnectionCounts: Sendable, Equatable {
    package var kept = 0
    /// Acknowledged.
    package var received = 0
    /// Replaced by a later one, or beyond the most that wait for a device.
    package var displaced = 0
    package var expired = 0
    package var waiting = 0

    package init() {}
}

/// The open connections of one node, as it reports them.
package struct ConnectionNode: Sendable, Equatable {
    package var name: String
    /// The counts by app, then by dialect.
    package var open: [String: [String: Int]]
    package var seenAt: Instant

    package init(name: String, open: [String: [String: Int]], seenAt: Instant = .now()) {
        self.name = name
        self.open = open
        self.seenAt = seenAt
    }
}
