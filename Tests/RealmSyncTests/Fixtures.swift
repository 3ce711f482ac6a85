import Foundation
import JSON
import RealmSync
import Testing

/// A recorded file beside this one: what the official client wrote.
func recorded(_ name: String) throws -> [JSONValue] {
    let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: name)
    let json = try JSONValue.parse(Array(Data(contentsOf: file)))
    return try #require(json["items"]?.array)
}

func bytes(hex: String) -> [UInt8] {
    let digits = Array(hex.filter { $0 != " " }.utf8)
    return stride(from: 0, to: digits.count - 1, by: 2).map { place in
        UInt8(String(decoding: digits[place...place + 1], as: UTF8.self), radix: 16) ?? 0
    }
}

/// The id of a key that is not one: its parts, so that tests can read them.
let readableID: @Sendable ([String]) -> String = { $0.joined(separator: "/") }

func decode(_ bytes: [UInt8]) throws(RealmChangesetFault) -> RealmObjects {
    try RealmChangeset(version: 1, serverVersion: 0, bytes: bytes[...]).decoded()
}

extension RealmChangeset {
    func decoded() throws(RealmChangesetFault) -> RealmObjects {
        var decoding = RealmDecoding(self, derivedID: readableID)
        while true {
            if let objects = try decoding.step() { return objects }
        }
    }
}

func decode(hex: String) throws(RealmChangesetFault) -> RealmObjects {
    try decode(RealmSyncTests.bytes(hex: hex))
}

extension RealmObjects {
    var all: [RealmObject] {
        var objects = self
        return (0..<count).compactMap { objects.object(at: $0) }
    }
}

/// Writes changesets as a client does.
struct ChangesetWriter {
    private(set) var bytes: [UInt8] = []
    private var strings: [String: Int] = [:]

    static func integer(_ value: Int64) -> [UInt8] {
        var rest = UInt64(bitPattern: value < 0 ? ~value : value)
        var bytes: [UInt8] = []
        while rest > 0x3F {
            bytes.append(UInt8(rest & 0x7F) | 0x80)
            rest >>= 7
        }
        return bytes + [UInt8(rest) | (value < 0 ? 0x40 : 0)]
    }

    mutating func raw(_ bytes: [UInt8]) { self.bytes += bytes }

    /// Interns a string, and returns the encoding of its index.
    mutating func name(_ text: String) -> [UInt8] {
        let index = strings[text] ?? strings.count
        if strings.updateValue(index, forKey: text) == nil {
            raw([0x3F] + Self.integer(Int64(index)) + Self.integer(Int64(text.utf8.count)))
            raw(Array(text.utf8))
        }
        return Self.integer(Int64(index))
    }

    /// An instruction on a class, with an integer key.
    mutating func instruction(
        _ type: UInt8,
        _ table: String = "V",
        key: Int64 = 1,
        field: String? = nil,
        path: [Any] = [],
        _ rest: [UInt8] = []
    ) {
        var head = [type] + name(table) + [0x01] + Self.integer(key)
        if let field {
            head += name(field) + Self.integer(Int64(path.count))
            for element in path {
                if let index = element as? Int {
                    head += Self.integer(Int64(index))
                } else if let text = element as? String {
                    head += [0x40] + name(text)
                }
            }
        }
        // Names are interned before the instruction that uses them.
        raw(head + rest)
    }

    mutating func create(_ table: String = "V", key: Int64 = 1) {
        instruction(0x02, table, key: key)
    }

    mutating func update(_ field: String, path: [Any] = [], _ payload: [UInt8], _ end: UInt8 = 0) {
        instruction(0x04, field: field, path: path, payload + [end])
    }

    static func string(_ text: String) -> [UInt8] {
        [0x03] + integer(Int64(text.utf8.count)) + Array(text.utf8)
    }
}

/// Writes one changeset and returns its only object.
func object(_ write: (inout ChangesetWriter) -> Void) throws -> RealmObject {
    var writer = ChangesetWriter()
    writer.create()
    write(&writer)
    let objects = try decode(writer.bytes).all
    #expect(objects.count == 1)
    return try #require(objects.first)
}

/// Counts up from a seed, so that tests know each random number.
final class Numbers: @unchecked Sendable {
    private var next: UInt64

    init(_ first: UInt64 = 1) { next = first }

    func take() -> UInt64 {
        next &+= 0x9E37_79B9_7F4A_7C15
        return next
    }
}

func makeConnection(
    _ version: Int = 14,
    limits: RealmLimits = RealmLimits()
) throws -> RealmConnection {
    let dialect = try #require(RealmDialect(offered: ["com.mongodb.realm-query-sync#\(version)"]))
    let numbers = Numbers()
    return RealmConnection(dialect, limits: limits) { numbers.take() }
}

func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

extension RealmConnection {
    /// Receives a message of text, and returns the answers as text.
    mutating func say(_ message: String) -> [String] {
        receive(Array(message.utf8)).messages.map(RealmSyncTests.text)
    }

    /// Begins a session at a place of both histories.
    mutating func begin(_ session: Int = 1, server: Int = 0, client: Int = 0, query: Int = 0) {
        _ = say("bind \(session) 0 0 0 0\n")
        _ = say("ident \(session) 5 77 \(server) \(client) \(server) 9 \(query) 2\n{}")
    }

    /// Uploads transactions of these versions, each of the given bytes.
    mutating func upload(
        _ versions: [Int],
        on session: Int = 1,
        server: Int = 0,
        changeset: [UInt8] = []
    ) throws -> RealmUpload {
        var body: [UInt8] = []
        for version in versions {
            body +=
                Array("\(version) \(server) 375000000000 0 \(changeset.count) ".utf8) + changeset
        }
        let head = "upload \(session) 0 \(body.count) 0 \(versions.last ?? 0) \(server) \(server)\n"
        let output = receive(Array(head.utf8) + body)
        #expect(output.end == nil)
        return try #require(output.upload)
    }

    /// Reports all transactions of an upload as stored.
    mutating func storeAll(_ upload: RealmUpload) throws -> [String] {
        let stored = try upload.changesets().map { RealmStored($0, refused: []) }
        return self.stored([(upload.ticket, stored)]).messages.map(RealmSyncTests.text)
    }
}

/// Random numbers that a seed determines.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(_ seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
