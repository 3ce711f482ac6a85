import JSON
import PushCore

/// Finds the objects of a body that cannot be parsed because of one of them. A lone surrogate,
/// `NaN` or too many levels are then the error of that object alone, and the others are stored.
enum CutBody {
    /// Whether the objects of a body may be found after this error. A body with too many bytes or
    /// values is rejected as a whole, as cutting it does not make it smaller.
    static func isPossible(after error: JSONError) -> Bool {
        switch error.expected {
        case .fewerBytes, .fewerValues: false
        case .value, .key, .colon, .commaOrBracket, .commaOrBrace, .end, .closingQuote, .escape,
            .escapedControl, .unicode, .surrogatePair, .digit, .lessDepth, .fewerMarks:
            true
        }
    }

    /// Finds the elements of an array, or one object.
    ///
    /// - Parameters:
    ///   - body: UTF-8, as far as it is valid.
    ///   - range: The range of the array or object; `nil`: the whole body.
    ///   - limit: The maximum number of elements.
    ///   - error: The reason for which the body is rejected as a whole.
    /// - Returns: The range of each element.
    /// - Throws: `error` if the range is not a complete array or object, or has more elements than
    ///   `limit`.
    static func places(
        _ body: [UInt8],
        in range: Range<Int>? = nil,
        limit: Int,
        after error: JSONError
    ) throws(JSONError) -> [Range<Int>] {
        let whole = range ?? body.indices
        guard isPossible(after: error) else { throw error }
        if let elements = JSONSlices.elements(of: body, in: whole, limit: limit) { return elements }
        guard JSONSlices.members(of: body, in: whole, limit: ObjectLimits.valuesOfBody) != nil
        else {
            throw error
        }
        return [whole]
    }

    /// The depth to which the pointer to a fault descends. Each level parses the rest once more.
    private static let levelsOfPointer = 4
    /// The size beyond which an object is not searched, as that takes the loop's time.
    private static let searchedBytes = 16 << 10

    /// Returns the error of an object that cannot be parsed, with the place of its fault.
    static func refused(
        _ body: [UInt8],
        _ range: Range<Int>,
        _ error: JSONError
    ) -> RefusedObject {
        var (range, error, pointer) = (range, error, "")
        var id: String?
        for level in 0..<(range.count <= searchedBytes ? levelsOfPointer : 0) {
            guard let parts = parts(body, range) else { break }
            if level == 0, let place = parts.last(where: { $0.name == "_id" })?.range {
                id = (try? ObjectText.value(body[place]))?.string.flatMap(IngestID.canonical)
            }
            var isInside = false
            for part in parts {
                do throws(JSONError) {
                    _ = try ObjectText.value(body[part.range])
                } catch let fault {
                    (range, error, isInside) = (part.range, fault, true)
                    pointer += "/" + JSONPointer.escaped(part.name)
                    break
                }
            }
            if !isInside { break }
        }
        return RefusedObject(id: id, pointer: pointer, reason: reason(error))
    }

    private static func reason(_ error: JSONError) -> String {
        switch error.expected {
        case .surrogatePair: "holds a lone surrogate, which cannot be stored"
        case .fewerMarks: "has too many combining marks in a row"
        case .lessDepth: "an object has at most \(ObjectLimits.levels) levels"
        case .value, .key, .colon, .commaOrBracket, .commaOrBrace, .end, .closingQuote, .escape,
            .escapedControl, .unicode, .digit, .fewerBytes, .fewerValues:
            "is not JSON: \(error.expected.rawValue)"
        }
    }

    /// Returns the members of an object or the elements of an array.
    private static func parts(
        _ body: [UInt8],
        _ range: Range<Int>
    ) -> [(name: String, range: Range<Int>)]? {
        let limit = ObjectLimits.valuesOfBody
        if let members = JSONSlices.members(of: body, in: range, limit: limit) {
            return members.map { ($0.key, $0.value) }
        }
        return JSONSlices.elements(of: body, in: range, limit: limit)?
            .enumerated().map { (String($0.offset), $0.element) }
    }
}
