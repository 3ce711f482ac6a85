/// A whole message of a client.
package enum WebSocketMessage: Sendable, Equatable {
    case text([UInt8])
    case binary([UInt8])
}
