internal import JSON
internal import PushCore
internal import WhereSQL

@testable internal import Postgres

/// Fuzzes conditions. Each is refused with an error that contains no value, or becomes SQL without
/// any text from outside: every word and string of it is one that the compiler knows, all
/// parentheses close, and each parameter is bound, used, and can be sent.
///
/// An input whose first byte is odd is a script, which makes conditions that are accepted more
/// often than random ones.
func fuzzWhere(_ bytes: [UInt8]) {
    let value: JSONValue
    if let first = bytes.first, first & 1 == 1 {
        var script = WhereScript(bytes.dropFirst())
        value = script.condition(depth: 3)
    } else {
        guard let read = try? JSONValue.parse(Array(bytes.dropFirst()), maximumDepth: 32) else {
            return
        }
        value = read
    }
    let condition: Where
    do throws(WhereError) {
        condition = try Where.parse(value)
    } catch {
        require([102, 103, 105, 106, 107, 302].contains(error.code), "refused with \(error.code)")
        require(error.description.utf8.count < 2000, "an error of any length")
        return
    }
    let isKnown = (try? condition.checkClasses()) != nil
    do throws(WhereError) {
        var compiler = WhereCompiler(app: "shop", parameters: [.text("shop")])
        let sql = try compiler.installations(condition, as: "n")
        let order = compiler.order([], of: condition, as: "n")
        check(sql, order, compiler.parameters)
    } catch {
        require(
            error.code == 103 ? !isKnown : error.problem == "too large a condition",
            "accepted, and then not compiled: \(error)"
        )
    }
}

private func check(_ sql: String, _ order: String, _ parameters: [PostgresValue]) {
    require(sql.utf8.count <= 256 * 1024, "\(sql.utf8.count) bytes of SQL")
    // The maximum of one statement.
    require(parameters.count <= 65_535, "\(parameters.count) parameters")
    var used = Set([1])
    for text in [sql, order] { scan(text, &used) }
    require(used == Set(1...parameters.count), "parameters are bound and not used, or not bound")
    var bytes: [UInt8] = []
    for parameter in parameters {
        bytes.removeAll(keepingCapacity: true)
        require((try? parameter.write(into: &bytes)) == true, "a parameter that cannot be sent")
    }
}

/// Scans SQL as Postgres would, word by word.
private func scan(_ sql: String, _ used: inout Set<Int>) {
    let bytes = Array(sql.utf8)
    var index = 0
    var depth = 0
    func text(from start: Int) -> String { String(decoding: bytes[start..<index], as: UTF8.self) }
    while index < bytes.count {
        let byte = bytes[index]
        let start = index
        index += 1
        switch byte {
        case UInt8(ascii: "'"), UInt8(ascii: "\""):
            while index < bytes.count, bytes[index] != byte { index += 1 }
            require(index < bytes.count, "a text that does not end")
            index += 1
            require(knownTexts.contains(text(from: start)), "a text in SQL: \(text(from: start))")
        case UInt8(ascii: "("), UInt8(ascii: "["): depth += 1
        case UInt8(ascii: ")"), UInt8(ascii: "]"):
            depth -= 1
            require(depth >= 0, "a parenthesis too many")
        case UInt8(ascii: "$"):
            while index < bytes.count, isDigit(bytes[index]) { index += 1 }
            guard let number = Int(text(from: start).dropFirst()) else {
                fatalError("no parameter: \(sql)")
            }
            used.insert(number)
        case _ where isLetter(byte):
            while index < bytes.count, isLetter(bytes[index]) || isDigit(bytes[index]) {
                index += 1
            }
            let word = text(from: start)
            let isAlias =
                word.first == "q" && word.count > 1 && word.dropFirst().allSatisfy(\.isNumber)
            require(isAlias || knownWords.contains(word), "a word in SQL: \(word)")
        case _ where isDigit(byte):
            require("0123456".utf8.contains(byte), "a number in SQL: \(sql)")
        default: require(" \n.,:=<>@&-#|*+~".utf8.contains(byte), "a sign in SQL: \(sql)")
        }
    }
    require(depth == 0, "a parenthesis that is not closed")
}

private func isDigit(_ byte: UInt8) -> Bool { (48...57).contains(byte) }

private func isLetter(_ byte: UInt8) -> Bool {
    (65...90).contains(byte) || (97...122).contains(byte) || byte == UInt8(ascii: "_")
}

private let knownTexts: Set<String> = [
    "'array'", "'object'", "'number'", "'string'", "'boolean'", "'null'", "'{}'", "'[]'", "'UTC'",
    "\"C\"",
    "'__type'", "'className'", "'objectId'", "'Pointer'", "'Date'", "'iso'",
    "'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'",
]

private let knownWords: Set<String> = [
    "n", "e", "found", "value", "app", "TRUE", "FALSE", "AND", "OR", "NOT", "IS", "NULL", "ANY",
    "IN",
    "AS", "ARRAY", "CASE", "WHEN", "THEN", "ELSE", "END", "EXISTS", "SELECT", "FROM", "WHERE",
    "ORDER",
    "BY", "LIMIT", "OFFSET", "ASC", "DESC", "NULLS", "FIRST", "LAST", "BETWEEN", "UNION", "ALL",
    "left", "COLLATE", "AT",
    "TIME", "ZONE", "text", "jsonb", "bigint", "numeric", "boolean", "timestamptz", "float8",
    "point",
    "polygon", "installations", "identities", "fields", "object_id", "id", "device_type",
    "installation_id", "identity", "provider", "time_zone", "apns_topic", "vendor",
    "device_profile",
    "channels", "badge", "channels_absent", "badge_absent",
    "valid", "created_at", "updated_at", "to_jsonb", "to_char",
    "jsonb_build_object", "jsonb_build_array", "jsonb_typeof", "jsonb_array_elements",
    "jsonb_array_length", "unnest", "cardinality", "carillon_instant", "carillon_point",
    "carillon_arc",
]
