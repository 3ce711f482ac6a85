internal import Glibc

/// Writes one HTTP/1.1 response. Only the server frames a response: the handler's own
/// `Content-Length`, `Transfer-Encoding`, `Connection` and `Date` are not sent (except HEAD's
/// length).
func writeHTTP1(
    _ response: HTTPServerResponse,
    to method: HTTPMethod?,
    version: HTTPVersion,
    closes: Bool,
    date: String,
    into output: inout [UInt8]
) {
    let status = responseStatus(response.status)
    output.reserveCapacity(output.count + 256 + response.body.count)
    output.append(contentsOf: "HTTP/1.1 ".utf8)
    appendNumber(status, to: &output)
    output.append(UInt8(ascii: " "))
    output.append(contentsOf: statusText(status).utf8)
    for field in response.headers where !isFramedByServer(field.name) {
        output.append(UInt8(ascii: "\r"))
        output.append(UInt8(ascii: "\n"))
        appendClean(field.name, to: &output)
        output.append(UInt8(ascii: ":"))
        output.append(UInt8(ascii: " "))
        appendClean(field.value, to: &output)
    }
    output.append(contentsOf: "\r\nDate: ".utf8)
    output.append(contentsOf: date.utf8)
    if let length = contentLength(of: response, to: method) {
        output.append(contentsOf: "\r\nContent-Length: ".utf8)
        appendNumber(length, to: &output)
    } else if response.stream != nil, version == .http11, sendsBody(response, to: method) {
        output.append(contentsOf: "\r\nTransfer-Encoding: chunked".utf8)
    }
    if closes {
        output.append(contentsOf: "\r\nConnection: close".utf8)
    } else if version == .http10 {
        output.append(contentsOf: "\r\nConnection: keep-alive".utf8)
    }
    output.append(contentsOf: "\r\n\r\n".utf8)
    if sendsBody(response, to: method) { output.append(contentsOf: response.body) }
}

/// Appends the decimal digits of a number that is not negative.
private func appendNumber(_ number: Int, to output: inout [UInt8]) {
    if number >= 10 { appendNumber(number / 10, to: &output) }
    output.append(UInt8(ascii: "0") + UInt8(number % 10))
}

/// Replaces a handler's invalid status by 500: a status is at most 599, and is not an interim one
/// (1xx).
func responseStatus(_ status: Int) -> Int { (200...599).contains(status) ? status : 500 }

/// Whether a response has a body. 204 and 304 never have one, nor a length.
func sendsBody(_ response: HTTPServerResponse, to method: HTTPMethod?) -> Bool {
    method != .head && response.status != 204 && response.status != 304
}

func contentLength(of response: HTTPServerResponse, to method: HTTPMethod?) -> Int? {
    guard response.status != 204, response.status != 304, response.stream == nil else {
        return nil
    }
    if method == .head, response.body.isEmpty,
        let length = response.headers["content-length"].flatMap({ Int($0) }), length >= 0
    {
        return length
    }
    return response.body.count
}

func isFramedByServer(_ name: String) -> Bool {
    switch name.utf8.count {
    case 4: equalWithoutCase(name, "date")
    case 10: equalWithoutCase(name, "connection") || equalWithoutCase(name, "keep-alive")
    case 14: equalWithoutCase(name, "content-length")
    case 17: equalWithoutCase(name, "transfer-encoding")
    default: false
    }
}

/// Appends a string; a string without control characters, the usual case, is copied in one piece.
private func appendClean(_ text: String, to output: inout [UInt8]) {
    var text = text
    let isAppended = text.withUTF8 { bytes in
        guard unsafe bytes.allSatisfy(isOfFieldValue) else { return false }
        unsafe output.append(contentsOf: bytes)
        return true
    }
    if !isAppended { output.append(contentsOf: cleanFieldValue(text).utf8) }
}

private func isOfFieldValue(_ byte: UInt8) -> Bool {
    (byte >= 0x20 && byte != 0x7F) || byte == UInt8(ascii: "\t")
}

/// Replaces control characters: a header value made from data must not end its line.
func cleanFieldValue(_ text: String) -> String {
    if text.utf8.allSatisfy(isOfFieldValue) { return text }
    let bytes = text.utf8.map { ($0 < 0x20 && $0 != UInt8(ascii: "\t")) || $0 == 0x7F ? 0x20 : $0 }
    return String(decoding: bytes, as: UTF8.self)
}

/// The `Date` field, rendered once a second.
struct HTTPDate {
    private var second = -1
    private var text = ""

    mutating func now() -> String {
        let current = time(nil)
        if current != second {
            second = current
            text = Self.text(secondsSince1970: current)
        }
        return text
    }

    /// Renders a time as RFC 9110's IMF-fixdate.
    static func text(secondsSince1970: Int) -> String {
        var seconds = secondsSince1970
        var parts = unsafe tm()
        unsafe gmtime_r(&seconds, &parts)
        let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
        let months = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ]
        let (weekday, month) = unsafe (Int(parts.tm_wday), Int(parts.tm_mon))
        let (day, year) = unsafe (Int(parts.tm_mday), Int(parts.tm_year) + 1900)
        let clock = unsafe [parts.tm_hour, parts.tm_min, parts.tm_sec].map { twoDigits(Int($0)) }
        return "\(days[weekday]), \(twoDigits(day)) \(months[month]) \(year) "
            + clock.joined(separator: ":") + " GMT"
    }

    private static func twoDigits(_ number: Int) -> String {
        number < 10 ? "0\(number)" : "\(number)"
    }
}
