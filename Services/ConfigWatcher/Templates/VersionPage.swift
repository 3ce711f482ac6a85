import ConfigStorage
import HTTPServer
import PushCore

/// The versions that a `:listVersions` asks for.
///
/// The token of a page contains the parameters of the page before it, so that clients that do not repeat them
/// get the following page.
struct VersionPage {
    private(set) var filter: ConfigVersionFilter

    private static let sizes = 1...300
    /// The clients' own defaults are 10 to 100.
    private static let usualSize = 100
    private static let separator: Character = "."
    private static let none = "-"

    /// The names of the query parameters.
    static let parameters = ["pageSize", "pageToken", "endVersionNumber", "startTime", "endTime"]

    init(_ query: QueryParameters) throws(FirebaseError) {
        var size = Self.usualSize
        if let text = query["pageSize"] {
            guard let number = text.wholeNumber, Self.sizes.contains(number) else {
                throw .invalid("pageSize must be 1 to 300, not \"\(text.shown)\"")
            }
            size = number
        }
        filter = ConfigVersionFilter(limit: size)
        if let token = query["pageToken"] { try read(token) }
        if let text = query["endVersionNumber"] {
            guard let number = text.wholeNumber, number > 0 else {
                throw .invalid(
                    "endVersionNumber must be a version's number, not \"\(text.shown)\""
                )
            }
            filter.endVersion = number
        }
        filter.startTime = try Self.time("startTime", query) ?? filter.startTime
        filter.endTime = try Self.time("endTime", query) ?? filter.endTime
    }

    /// Returns the token of the page after this one.
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
        else { throw .invalid("unknown pageToken \"\(token.shown)\"") }
        filter.before = before
        filter.endVersion = numbers[1]
        filter.startTime = numbers[2].map { Instant(milliseconds: Int64($0)) }
        filter.endTime = numbers[3].map { Instant(milliseconds: Int64($0)) }
    }

    private static func time(
        _ name: String,
        _ query: QueryParameters
    ) throws(FirebaseError) -> Instant? {
        guard let text = query[name] else { return nil }
        guard let time = Instant(iso8601: text) else {
            throw .invalid(
                "\(name) must be a time such as 2026-11-20T21:04:05Z, not \"\(text.shown)\""
            )
        }
        return time
    }
}
