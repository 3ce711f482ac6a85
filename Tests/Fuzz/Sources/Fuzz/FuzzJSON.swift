internal import JSON

/// What is taken can be written, and what was written reads as the same value and is written the
/// same way again. What is refused is refused at a place within the text.
func fuzzJSON(_ bytes: [UInt8]) {
    let value: JSONValue
    do throws(JSONError) {
        value = try JSONValue.parse(bytes, maximumDepth: 32)
    } catch {
        require(0...bytes.count ~= error.offset, "refused at \(error.offset) of \(bytes.count)")
        require(1...bytes.count + 1 ~= error.line, "refused in line \(error.line)")
        return
    }
    let written = value.bytes
    do throws(JSONError) {
        let again = try JSONValue.parse(written, maximumDepth: 32)
        require(again == value, "what was written reads as something else")
        require(again.bytes == written, "what was written is written in another way")
    } catch {
        fatalError("what was written is refused: \(error)")
    }
}
