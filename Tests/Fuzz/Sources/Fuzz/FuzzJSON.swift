internal import JSON

/// Fuzzes the JSON parser. An accepted text can be written, and the result is parsed as the same
/// value and written the same again. A refused text is refused with a position within it. Reading
/// in place and skipping accept and refuse the same as the tree.
func fuzzJSON(_ bytes: [UInt8]) {
    let value: JSONValue
    let (walked, walkError) = readInPlace(bytes, walk)
    let (_, skipError) = readInPlace(bytes) { reader throws(JSONError) in
        try reader.skip()
        return .null
    }
    do throws(JSONError) {
        value = try JSONValue.parse(bytes, maximumDepth: 32)
    } catch {
        require(walkError == error, "refused in another way when read in place")
        require(skipError == error, "refused in another way when passed over")
        require(0...bytes.count ~= error.offset, "refused at \(error.offset) of \(bytes.count)")
        require(1...bytes.count + 1 ~= error.line, "refused in line \(error.line)")
        return
    }
    require(walked == value, "read in place it is something else")
    require(skipError == nil, "taken by the tree, refused when skipped")
    let written = value.bytes
    do throws(JSONError) {
        let again = try JSONValue.parse(written, maximumDepth: 32)
        require(again == value, "what was written reads as something else")
        require(again.bytes == written, "what was written is written in another way")
    } catch {
        fatalError("what was written is refused: \(error)")
    }
}

private func readInPlace(
    _ bytes: [UInt8],
    _ body: (inout JSONReader) throws(JSONError) -> JSONValue
) -> (JSONValue?, JSONError?) {
    do throws(JSONError) {
        return (try JSONReader.read(bytes, maximumDepth: 32, body), nil)
    } catch {
        return (nil, error)
    }
}

/// Builds the tree from a reader's typed reads.
private func walk(_ reader: inout JSONReader) throws(JSONError) -> JSONValue {
    switch reader.kind {
    case .object:
        var object = JSONObject()
        try reader.object { key, reader throws(JSONError) in
            object[key.text] = try walk(&reader)
        }
        return .object(object)
    case .array:
        var array: [JSONValue] = []
        try reader.array { element throws(JSONError) in array.append(try walk(&element)) }
        return .array(array)
    case .string: return try reader.string().map(JSONValue.string) ?? .null
    case .boolean: return try reader.bool().map(JSONValue.bool) ?? .null
    case .null: return try reader.null() ? .null : "null was not told"
    case .number, .none: return try reader.tree()
    }
}
