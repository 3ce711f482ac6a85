/// One request's stream or, over HTTP/1.1, its turn on the connection, after its handler has
/// returned: the operations of an `HTTPServerResponse.ending`. A request for which it does nothing
/// never gets a response, and does not delay a stop.
///
/// On the connection's loop, and only until the ending returns.
package protocol HTTPExchange {
    /// Sends the response. Only the first of this and `reset` counts.
    func answer()
    /// Sends `RST_STREAM` with this code; over HTTP/1.1 the connection is dropped without a
    /// response.
    func reset(code: UInt32)
    /// Sends `GOAWAY`: streams beyond `lastStreamID` (nil: the newest so far) are dropped, the
    /// others answered, then the connection is closed. Does nothing over HTTP/1.1, where a response
    /// with `Connection: close` is the last.
    func goaway(lastStreamID: Int?, code: UInt32, data: [UInt8])
}
