/// One request's stream or, over HTTP/1.1, its turn on the connection, once its handler has returned:
/// what an `HTTPServerResponse.ending` may do with it. What it leaves undone stays so: a request for
/// which nothing is done is never answered, and holds up no stop.
///
/// On the connection's loop, and only until the ending returns.
package protocol HTTPExchange {
    /// Sends the answer. Only the first of this and `reset` counts.
    func answer()
    /// `RST_STREAM` with this code; over HTTP/1.1 the connection is dropped unanswered.
    func reset(code: UInt32)
    /// `GOAWAY`: streams beyond `lastStreamID` (nil: the newest that has come) are dropped, the others
    /// answered, then the connection is closed. Nothing over HTTP/1.1, where an answer with
    /// `Connection: close` is the last.
    func goaway(lastStreamID: Int?, code: UInt32, data: [UInt8])
}
