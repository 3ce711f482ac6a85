import HTTPServer
import PushCore
import PushStorage

/// Which versions a `:listVersions` asks for.
///
/// The token of a page says all that the page before it was asked with, so that clients that repeat
/// nothing of that get what comes next.
struct VersionPage {
    private(set) var filter: ConfigVersionFilter

    private static let sizes = 1...300
    /// The clients' own is 10 to 100.
    private static let usualSize = 100
    private static let separator: Character = "."
    private static let none = "-"

    init(_ request: HTTPServerRequest) throws(FirebaseError) {
        var size = Self.usualSize
        if let text = Self.parameter("pageSize", request) {
            guard let number = text.wholeNumber, Self.sizes.contains(number) else {
                throw .invalid("pageSize must be 1 to 300")
            }
            size = number
        }
        filter = ConfigVersionFilter(limit: size)
        if let token = Self.parameter("pageToken", request) { try read(token) }
        if let text = Self.parameter("endVersionNumber", request) {
            guard let number = text.wholeNumber, number > 0 else {
                throw .invalid("endVersionNumber must be a version's number")
            }
            filter.endVersion = number
        }
        filter.startTime = try Self.time("startTime", request) ?? filter.startTime
        filter.endTime = try Self.time("endTime", request) ?? filter.endTime
    }

    /// Of the page after this one.
    func next(after version: Int) -> String {
        [
            version, filter.endVersion, filter.startTime.map { Int($0.milliseconds) },
            filter.endTime.map { Int($0.milliseconds) },
        ]
        .map { $0.map { String($0) } ?? Self.none }.joined(separator: String(Self.separator))
    }

    private mutating func read(_ token: String) throws(FirebaseError) {
        let parts = token.split(separator: Self.separator, omittingEmptySubsequences: false)
        let numbers = parts.map { $0 == Self.none ? nil : Int($0) }
        guard parts.count == 4, let before = numbers[0], before > 0,
            zip(parts, numbers).allSatisfy({ $0 == Self.none || $1 != nil })
        else { throw .invalid("pageToken is none that was given here") }
        filter.before = before
        filter.endVersion = numbers[1]
        filter.startTime = numbers[2].map { Instant(milliseconds: Int64($0)) }
        filter.endTime = numbers[3].map { Instant(milliseconds: Int64($0)) }
    }

    private static func time(
        _ name: String,
        _ request: HTTPServerRequest
    ) throws(FirebaseError) -> Instant? {
        guard let text = parameter(name, request) else { return nil }
        guard let time = Instant(iso8601: text) else {
            throw .invalid("\(name) must be a time such as 2026-11-20T21:04:05Z")
        }
        return time
    }

    /// An empty one is none.
    private static func parameter(_ name: String, _ request: HTTPServerRequest) -> String? {
        request.queryValue(name).flatMap { $0.isEmpty ? nil : $0 }
    }
}
