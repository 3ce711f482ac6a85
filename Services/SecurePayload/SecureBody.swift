import JSON

/// The fields of a request's body, read by name and kind; `null` counts as absent.
struct SecureBody {
    private static let maximumDepth = 8
    private static let maximumValues = 1000

    private let object: JSONObject

    /// - Parameters:
    ///   - bytes: The body; an empty one is an empty object.
    ///   - known: The allowed field names.
    /// - Throws: `SecureRequestError` if the body is not a JSON object or has another field.
    init(_ bytes: [UInt8], known: ExactStringSet) throws(SecureRequestError) {
        guard !bytes.isEmpty else {
            object = [:]
            return
        }
        let value: JSONValue
        do throws(JSONError) {
            // Text is passed on and compared only by its bytes, so its combining marks need no limit.
            value = try JSONValue.parse(
                bytes,
                maximumDepth: Self.maximumDepth,
                maximumValues: Self.maximumValues,
                maximumMarks: .max
            )
        } catch {
            throw SecureRequestError("the body is not JSON: \(error.description)")
        }
        guard let object = value.object else {
            throw SecureRequestError("the body must be a JSON object")
        }
        for name in object.keys where !known.contains(name) {
            throw SecureRequestError("unknown field \(name.prefix(100))")
        }
        self.object = object
    }

    private subscript(_ name: String) -> JSONValue? {
        guard let value = object[name], !value.isNull else { return nil }
        return value
    }

    func text(
        _ name: String,
        bytes: ClosedRange<Int>
    ) throws(SecureRequestError) -> String? {
        guard let value = self[name] else { return nil }
        guard let text = value.string, bytes.contains(text.utf8.count) else {
            throw SecureRequestError(
                "\(name) must be a text of \(bytes.lowerBound) to \(bytes.upperBound) bytes"
            )
        }
        return text
    }

    func neededText(
        _ name: String,
        bytes: ClosedRange<Int>
    ) throws(SecureRequestError) -> String {
        guard let text = try text(name, bytes: bytes) else {
            throw SecureRequestError("\(name) is missing")
        }
        return text
    }

    func flag(_ name: String) throws(SecureRequestError) -> Bool {
        guard let value = self[name] else { return false }
        guard let flag = value.bool else {
            throw SecureRequestError("\(name) must be true or false")
        }
        return flag
    }

    func number(
        _ name: String,
        in range: ClosedRange<Int>
    ) throws(SecureRequestError) -> Int? {
        guard let value = self[name] else { return nil }
        guard let number = value.integer, range.contains(number) else {
            throw SecureRequestError(
                "\(name) must be a whole number of \(range.lowerBound) to \(range.upperBound)"
            )
        }
        return number
    }
}

/// The reason why a request is invalid. Names the field, never contains its value.
struct SecureRequestError: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
