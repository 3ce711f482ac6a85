/// The operations of an `HTTPServerResponse.ending`, after the request's handler has returned: on
/// the request's stream or, over HTTP/1.1, on its connection. An ending that calls no operation
/// leaves the request without a response; such a request does not delay a stop.
///
/// Use it on the connection's loop, and only until the ending returns.
package protocol HTTPExchange {
    /// Sends the response. Of `answer` and `reset`, only the first call counts.
    func answer()
    /// Sends `RST_STREAM` with this code; over HTTP/1.1 the connection is dropped without a
    /// response.
    func reset(code: UInt32)
    /// Sends `GOAWAY`: streams beyond `lastStreamID` (nil: the newest so far) are dropped, the
    /// others answered, then the connection is closed. Does nothing over HTTP/1.1, where a response
    /// with `Connection: close` is the last.
    func goaway(lastStreamID: Int?, code: UInt32, data: [UInt8])
}
