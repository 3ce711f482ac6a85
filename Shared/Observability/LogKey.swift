/// A key of logged data. Only these are logged, so that a search for one finds all.
package struct LogKey: Hashable, Sendable {
    package let name: String
    /// The bytes with which a member begins in a JSON object, after another.
    let opening: [UInt8]

    private init(_ name: String) {
        self.name = name
        opening = Array(",\"\(name)\":".utf8)
    }

    package static let app = LogKey("push.app")
    package static let attempt = LogKey("push.attempt")
    package static let bootstrap = LogKey("bootstrap")
    package static let bytes = LogKey("bytes")
    package static let connection = LogKey("connection")
    package static let count = LogKey("count")
    package static let credential = LogKey("push.credential")
    package static let database = LogKey("db.namespace")
    package static let descriptors = LogKey("descriptors")
    package static let detail = LogKey("detail")
    package static let durationMilliseconds = LogKey("duration_ms")
    package static let environment = LogKey("push.environment")
    package static let error = LogKey("error")
    package static let errorType = LogKey("error.type")
    package static let eventID = LogKey("push.event.id")
    package static let httpMethod = LogKey("http.request.method")
    package static let httpRoute = LogKey("http.route")
    package static let httpStatus = LogKey("http.response.status_code")
    package static let installationID = LogKey("push.installation.id")
    package static let kafkaGroup = LogKey("messaging.consumer.group.name")
    package static let kafkaOffset = LogKey("messaging.kafka.offset")
    package static let kafkaPartition = LogKey("messaging.destination.partition.id")
    package static let kafkaTopic = LogKey("messaging.destination.name")
    package static let name = LogKey("name")
    package static let networkPeer = LogKey("network.peer.address")
    package static let part = LogKey("part")
    package static let path = LogKey("path")
    package static let port = LogKey("port")
    package static let provider = LogKey("push.provider")
    package static let pushID = LogKey("push.notification.id")
    package static let reason = LogKey("reason")
    package static let scheme = LogKey("scheme")
    package static let surface = LogKey("surface")
    package static let session = LogKey("session")
    package static let shard = LogKey("push.shard")
    package static let shards = LogKey("push.shards")
    package static let signal = LogKey("signal")
    package static let sqlState = LogKey("db.response.status_code")
    package static let status = LogKey("status")
    package static let variable = LogKey("variable")
    package static let version = LogKey("version")
}

/// A logged value. Never a token, a payload, a key or a connection URI.
package enum LogValue: Sendable, Equatable {
    case string(String)
    case integer(Int)
    case double(Double)
    case boolean(Bool)
}

extension LogValue: ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral, ExpressibleByBooleanLiteral
{
    package init(stringLiteral value: String) { self = .string(value) }
    package init(integerLiteral value: Int) { self = .integer(value) }
    package init(floatLiteral value: Double) { self = .double(value) }
    package init(booleanLiteral value: Bool) { self = .boolean(value) }
}
