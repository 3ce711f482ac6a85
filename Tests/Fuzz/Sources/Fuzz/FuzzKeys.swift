internal import Credentials
internal import JSON

/// Fuzzes objects with hostile keys. Each key exists once, byte by byte, can be found and removed,
/// in time linear in the bytes.
func fuzzKeys(_ bytes: [UInt8]) {
    guard let first = bytes.first else { return }
    var keys: [String] = []
    var rest = bytes.dropFirst()
    while !rest.isEmpty {
        keys.append(String(decoding: rest.prefix(Int(first % 48) + 1), as: UTF8.self))
        rest = rest.dropFirst(Int(first % 48) + 1)
    }
    let text = Array(
        ("{" + keys.map { JSONValue.string($0).text + ":0" }.joined(separator: ",") + "}").utf8
    )
    within(text.count) {
        guard let object = (try? JSONValue.parse(text))?.object else {
            require(keys.contains { !CombiningMarkRun.isWithin($0) }, "a good object is refused")
            return
        }
        var left = object
        for key in keys {
            require(object[key] == 0, "a key is not found")
            require(key != "objectId" || key.utf8.count == 8, "equal to a constant, and is not it")
            left.removeValue(forKey: key)
        }
        require(left.isEmpty, "what was removed is there")
    }
    if let object = (try? JSONValue.parse(text))?.object {
        require(object.count == Set(keys.map { Array($0.utf8) }).count, "keys are merged")
    }
}

private let names: [StaticString] = ["_ApplicationId", "_MasterKey", "_JavaScriptKey", "a"]

/// Fuzzes the caller in a body. It is the same as the tree's, for the same bodies, and is read as
/// quickly.
func fuzzCredentials(_ bytes: [UInt8]) {
    let object =
        (try? JSONValue.parse(
            bytes,
            maximumDepth: BodyLimits.depth,
            maximumValues: BodyLimits.values
        ))?.object
    within(bytes.count) {
        let found = BodyCredentials(bytes, named: names)
        require((found == nil) == (object == nil), "another body is taken than by the tree")
        for name in names.map({ "\($0)" }) {
            require(
                found?.text(name).map { Array($0.utf8) }
                    == object?[name]?.string.map { Array($0.utf8) },
                "\(name) is another"
            )
            require(
                (found?.has(name) ?? false) == (object?[name] != nil),
                "\(name) is there or not"
            )
        }
    }
}
