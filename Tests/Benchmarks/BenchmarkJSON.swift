internal import Foundation
internal import JSON

/// Reading one record to a value tree, and writing that tree.
func measureJSON(file: String) throws -> String {
    let bytes = try [UInt8](Data(contentsOf: URL(filePath: file)))
    let value = try JSONValue.parse(bytes)
    var sum = 0
    let reading = try medianNanoseconds {
        if case .object(let object) = try JSONValue.parse(bytes) { sum &+= object.count }
    }
    let writing = medianNanoseconds { sum &+= value.bytes.count }
    guard sum != 0 else { throw BenchmarkError("\(file) is no object") }
    let figures: JSONValue = [
        "bytes": JSONValue(bytes.count), "read_ns": .double(reading), "write_ns": .double(writing),
    ]
    return figures.text
}
