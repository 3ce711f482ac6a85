internal import Glibc

package enum LogLevel: Int, Comparable, Sendable, CaseIterable {
    case debug, info, warning, error, critical

    package var name: String {
        switch self {
        case .debug: "debug"
        case .info: "info"
        case .warning: "warning"
        case .error: "error"
        case .critical: "critical"
        }
    }

    package init?(name: String) {
        guard let level = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = level
    }

    package static func < (left: LogLevel, right: LogLevel) -> Bool {
        left.rawValue < right.rawValue
    }
}

package enum LogFormat: String, Sendable, CaseIterable {
    case json, text
}

/// The data of a line beside its message, in order.
package struct LogData: Sendable, ExpressibleByDictionaryLiteral {
    /// Without labels, as each line's labels would be copied one by one.
    fileprivate var pairs: [(LogKey, LogValue)]

    package init(dictionaryLiteral elements: (LogKey, LogValue)...) { pairs = elements }

    /// The value of a key; setting replaces it, or removes it.
    package subscript(key: LogKey) -> LogValue? {
        get { pairs.first { $0.0 == key }?.1 }
        set {
            let place = pairs.firstIndex { $0.0 == key }
            switch (place, newValue) {
            case (let place?, let value?): pairs[place].1 = value
            case (let place?, nil): pairs.remove(at: place)
            case (nil, let value?): pairs.append((key, value))
            case (nil, nil): break
            }
        }
    }

    package func with(_ key: LogKey, _ value: LogValue) -> LogData {
        var data = self
        data[key] = value
        return data
    }
}

/// Writes one line a call: the time, the level, the service, a constant message, then the data.
///
/// A value to pass on; it owns nothing. Each line is one `write`, so that lines of several threads
/// never mix.
package struct Log: Sendable {
    package let service: String
    package let level: LogLevel
    package let format: LogFormat
    private let write: @Sendable ([UInt8]) -> Void

    /// A log that drops all lines.
    package static let disabled = Log(service: "", level: .critical, format: .json) { _ in }

    package init(
        service: String,
        level: LogLevel,
        format: LogFormat,
        write: @escaping @Sendable ([UInt8]) -> Void = Log.standardOutput
    ) {
        self.service = service
        self.level = level
        self.format = format
        self.write = write
    }

    package func debug(_ message: StaticString, _ data: LogData = [:]) {
        log(.debug, message, data)
    }

    package func info(_ message: StaticString, _ data: LogData = [:]) {
        log(.info, message, data)
    }

    package func warning(_ message: StaticString, _ data: LogData = [:]) {
        log(.warning, message, data)
    }

    package func error(_ message: StaticString, _ data: LogData = [:]) {
        log(.error, message, data)
    }

    package func critical(_ message: StaticString, _ data: LogData = [:]) {
        log(.critical, message, data)
    }

    package func log(_ level: LogLevel, _ message: StaticString, _ data: LogData) {
        guard level >= self.level else { return }
        var line: [UInt8] = []
        line.reserveCapacity(192)
        append(level, message, data, to: &line)
        write(line)
    }

    /// Appends the line that a call of `log` would write, with its end.
    fileprivate func append(
        _ level: LogLevel,
        _ message: StaticString,
        _ data: LogData,
        to line: inout [UInt8]
    ) {
        var timestamp = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &timestamp)
        let time = Timestamp(
            secondsSince1970: timestamp.tv_sec,
            milliseconds: timestamp.tv_nsec / 1_000_000
        )
        switch format {
        case .json: writeJSON(time, level, message, data, into: &line)
        case .text: writeText(time, level, message, data, into: &line)
        }
        line.append(UInt8(ascii: "\n"))
    }

    fileprivate func write(whole lines: [UInt8]) { write(lines) }

    private func writeJSON(
        _ time: Timestamp,
        _ level: LogLevel,
        _ message: StaticString,
        _ data: LogData,
        into line: inout [UInt8]
    ) {
        line.append("{\"time\":\"")
        time.append(to: &line)
        line.append("\",\"level\":\"")
        line.append(text: level.name)
        line.append("\",\"service\":")
        line.append(quoted: service)
        line.append(",\"message\":")
        line.append(quoted: message)
        for (key, value) in data.pairs {
            line.append(contentsOf: key.opening)
            switch value {
            case .string(let text): line.append(quoted: text)
            case .integer(let number): line.append(number: number)
            case .double(let number) where number.isFinite: line.append(number: number)
            case .double(let number): line.append(quoted: number.description)
            case .boolean(let flag): line.append(flag ? "true" : "false")
            }
        }
        line.append(UInt8(ascii: "}"))
    }

    private func writeText(
        _ time: Timestamp,
        _ level: LogLevel,
        _ message: StaticString,
        _ data: LogData,
        into line: inout [UInt8]
    ) {
        line.append(text: "\(time.text) \(level.name) \(service): \(message)")
        for (key, value) in data.pairs {
            line.append(text: " \(key.name)=")
            switch value {
            case .string(let text): line.append(quoted: text)
            case .integer(let number): line.append(number: number)
            case .double(let number): line.append(number: number)
            case .boolean(let flag): line.append(flag ? "true" : "false")
            }
        }
    }

    /// Writes the whole line to standard output; bytes that the kernel refuses are dropped, since
    /// there is no better place to report that.
    @Sendable
    package static func standardOutput(_ line: [UInt8]) {
        unsafe line.withUnsafeBytes { bytes in
            var rest = unsafe bytes[...]
            while unsafe !rest.isEmpty {
                let written = unsafe Glibc.write(STDOUT_FILENO, rest.baseAddressOrNil, rest.count)
                if written < 0 {
                    if errno == EINTR { continue }
                    return
                }
                unsafe rest = rest.dropFirst(written)
            }
        }
    }
}

/// Lines that are written together, as those of the requests that one turn of a loop answered: a
/// write for each would cost more than the lines. Whole lines are written in pieces that a pipe
/// takes at once, so that they do not mix with those of other threads.
package struct LogLines: Sendable {
    /// Linux' `PIPE_BUF`.
    private static let pieceBytes = 4096

    private let log: Log
    private var gathered: [UInt8] = []

    package init(_ log: Log) { self.log = log }

    package var isEmpty: Bool { gathered.isEmpty }

    /// Adds a line; earlier ones are written first if it does not fit.
    package mutating func add(_ level: LogLevel, _ message: StaticString, _ data: LogData) {
        guard level >= log.level else { return }
        let start = gathered.count
        log.append(level, message, data, to: &gathered)
        guard gathered.count > Self.pieceBytes, start > 0 else { return }
        let line = Array(gathered[start...])
        gathered.removeSubrange(start...)
        writeAll()
        gathered += line
    }

    package mutating func writeAll() {
        if gathered.isEmpty { return }
        log.write(whole: gathered)
        gathered.removeAll(keepingCapacity: true)
    }
}

extension Slice where Base == UnsafeRawBufferPointer {
    fileprivate var baseAddressOrNil: UnsafeRawPointer? {
        unsafe base.baseAddress.map { unsafe $0 + startIndex }
    }
}
