internal import JSON

/// A problem that a client reports: an error of this server. Safe to log; the text is the client's.
package struct RealmComplaint: Equatable, Sendable {
    package let code: Int64
    package let message: String
}

/// The client's place in both histories, as it repeats it in each connection.
struct ClientProgress: Equatable, Sendable {
    var fileIdent: Int64
    var salt: Int64
    var downloadServer: Int64
    var downloadClient: Int64
    var latestServer: Int64
    var latestSalt: Int64
    var queryVersion: Int64
}

/// A message of a client: `<word> <number> … <number>\n`, and a body of a stated size.
enum ClientMessage {
    case bind(session: Int64, needsIdent: Bool)
    case ident(session: Int64, ClientProgress)
    case query(session: Int64, version: Int64)
    case mark(session: Int64, request: Int64)
    case upload(session: Int64, UploadBody)
    case unbind(session: Int64)
    case ping(timestamp: Int64)
    case complaint(RealmComplaint)
    /// Only vendors' own tests send it.
    case test

    struct UploadBody: Equatable, Sendable {
        let start: Int
        let isCompressed: Bool
        let plainSize: Int
    }

    private enum Word: String {
        case bind, ident, query, mark, upload, unbind, ping
        case complaint = "json_error"
        case test = "test_command"

        var numbers: Int {
            switch self {
            case .unbind: 1
            case .mark, .ping: 2
            case .query, .complaint, .test: 3
            case .bind: 5
            case .upload: 7
            case .ident: 9
            }
        }
    }

    /// The longest word, and the most digits of nine numbers, with their separators.
    private static let maximumWordBytes = 12

    /// Parses a message. Sizes are those of the bytes that are there, and nothing follows them.
    init(_ bytes: [UInt8], limits: RealmLimits) throws(RealmFault) {
        guard bytes.count <= limits.messageBytes else { throw .tooLarge }
        guard let space = bytes.prefix(Self.maximumWordBytes + 1).firstIndex(of: UInt8(ascii: " ")),
            let word = Word(rawValue: String(decoding: bytes[..<space], as: UTF8.self))
        else { throw .malformed("unknown word") }
        let fault = RealmFault.malformed(word.rawValue)
        var cursor = TextCursor(bytes, at: space + 1)
        var numbers: [Int64] = []
        numbers.reserveCapacity(9)
        for place in 1...word.numbers {
            let end = place == word.numbers ? UInt8(ascii: "\n") : UInt8(ascii: " ")
            guard let number = cursor.number(endingWith: end) else { throw fault }
            numbers.append(number)
        }
        let rest = Int64(cursor.remaining)
        func flag(_ place: Int) throws(RealmFault) -> Bool {
            guard numbers[place] <= 1 else { throw fault }
            return numbers[place] == 1
        }
        let session = numbers[0]
        func requireSession() throws(RealmFault) { if session == 0 { throw fault } }
        func requireBody(_ size: Int64) throws(RealmFault) { if size != rest { throw fault } }

        switch word {
        case .bind:
            try requireSession()
            // Both are sizes, of a path or JSON and of a token.
            guard numbers[1] <= rest, numbers[2] == rest - numbers[1] else { throw fault }
            _ = try flag(4)
            self = .bind(session: session, needsIdent: try flag(3))
        case .ident:
            try requireSession()
            try requireBody(numbers[8])
            let progress = ClientProgress(
                fileIdent: numbers[1],
                salt: numbers[2],
                downloadServer: numbers[3],
                downloadClient: numbers[4],
                latestServer: numbers[5],
                latestSalt: numbers[6],
                queryVersion: numbers[7]
            )
            guard progress.isPossible else { throw fault }
            self = .ident(session: session, progress)
        case .query:
            try requireSession()
            try requireBody(numbers[2])
            self = .query(session: session, version: numbers[1])
        case .mark:
            try requireSession()
            try requireBody(0)
            self = .mark(session: session, request: numbers[1])
        case .upload:
            try requireSession()
            let isCompressed = try flag(1)
            try requireBody(isCompressed ? numbers[3] : numbers[2])
            guard isCompressed || numbers[3] == 0 else { throw fault }
            guard numbers[2] <= Int64(limits.unpackedBytes) else { throw .tooLarge }
            self = .upload(
                session: session,
                UploadBody(
                    start: cursor.position,
                    isCompressed: isCompressed,
                    plainSize: Int(numbers[2])
                )
            )
        case .unbind:
            try requireSession()
            try requireBody(0)
            self = .unbind(session: session)
        case .ping:
            try requireBody(0)
            self = .ping(timestamp: numbers[0])
        case .complaint:
            try requireBody(numbers[1])
            self = .complaint(
                RealmComplaint(code: numbers[0], message: Self.message(bytes[cursor.position...]))
            )
        case .test:
            try requireBody(numbers[2])
            self = .test
        }
    }

    private static func message(_ body: ArraySlice<UInt8>) -> String {
        guard body.count <= 64 << 10,
            let json = try? JSONValue.parse(Array(body), maximumDepth: 8),
            let text = json["message"]?.string
        else { return "" }
        return String(text.prefix(512))
    }
}

extension ClientProgress {
    /// The highest version with which one connection can still count.
    private static let highest: Int64 = 1 << 62

    /// Whether a client can be at this place: versions below what can be counted, in their order.
    fileprivate var isPossible: Bool {
        fileIdent > 0 && salt > 0
            && downloadServer <= Self.highest && latestServer <= Self.highest
            && downloadClient <= Self.highest
    }
}
