import HTTPServer
import JSON

/// The body of an insert.
struct AtlasInsert: Sendable {
    let collection: String
    private let body: [UInt8]
    /// The ranges of the documents in the body.
    private let places: [Range<Int>]
    let isMany: Bool

    var count: Int { places.count }

    /// - Throws: 400 that names the field, 413 if there are too many documents.
    init(_ body: [UInt8], isMany: Bool) throws {
        let fields: Fields
        do {
            fields = try Fields(body)
        } catch let error as JSONError {
            throw Self.refused(body, isMany: isMany, after: error) ?? error
        }
        // In Atlas these fields name the target. Here the app and the type do, but the fields are
        // required.
        for (name, text) in [
            ("dataSource", fields.dataSource), ("database", fields.database),
            ("collection", fields.collection),
        ] {
            guard text?.isEmpty == false else { throw Self.wrong("\(name) must be a text") }
        }
        self.body = body
        self.isMany = isMany
        collection = fields.collection ?? ""
        if isMany {
            guard let places = fields.documents, !places.isEmpty else {
                throw Self.wrong("documents must be an array that is not empty")
            }
            guard places.count <= ObjectLimits.objects else {
                throw HTTPProblem(
                    status: 413,
                    detail: "documents: at most \(ObjectLimits.objects) at once"
                )
            }
            self.places = places
        } else {
            guard let document = fields.document else {
                throw Self.wrong("document must be an object")
            }
            places = [document]
        }
    }

    /// Returns the error of the document for which the body is rejected; `nil` if no document is at fault.
    private static func refused(
        _ body: [UInt8],
        isMany: Bool,
        after error: JSONError
    ) -> (any Error)? {
        let name = isMany ? "documents" : "document"
        guard CutBody.isPossible(after: error),
            let place = JSONSlices.members(of: body, limit: ObjectLimits.valuesOfBody)?
                .last(where: { $0.key == name })?.value,
            let places = try? CutBody.places(
                body,
                in: place,
                limit: ObjectLimits.objects,
                after: error
            )
        else { return nil }
        for (index, place) in places.enumerated() {
            do throws(JSONError) {
                _ = try ObjectText.value(body[place])
            } catch {
                return RefusedDocument(
                    place: isMany ? "documents[\(index)]" : name,
                    object: CutBody.refused(body, place, error)
                )
            }
        }
        return nil
    }

    /// - Throws: `RefusedObject` if the document is too large.
    func document(_ index: Int) throws -> JSONValue {
        let text = body[places[index]]
        if text.count > ObjectLimits.bytes, ObjectText.leastBytes(text) > ObjectLimits.bytes {
            throw ObjectText.tooLarge(ObjectText.id(text))
        }
        return try ObjectText.value(text)
    }

    /// The fields of the body. Of a repeated name the last counts.
    private struct Fields {
        var dataSource: String?
        var database: String?
        var collection: String?
        var document: Range<Int>?
        /// The ranges of the documents, at most one more than the limit.
        var documents: [Range<Int>]?

        init(_ body: [UInt8]) throws {
            var fields = Fields()
            var isObject = false
            try JSONReader.visit(
                body,
                maximumDepth: ObjectLimits.levelsOfBody,
                maximumValues: ObjectLimits.valuesOfBody
            ) { reader throws(JSONError) in
                isObject = try reader.object { key, reader throws(JSONError) in
                    if key.isEqual(to: "dataSource") {
                        fields.dataSource = try reader.string()
                    } else if key.isEqual(to: "database") {
                        fields.database = try reader.string()
                    } else if key.isEqual(to: "collection") {
                        fields.collection = try reader.string()
                    } else if key.isEqual(to: "document") {
                        let isObject = reader.kind == .object
                        let place = try reader.slice()
                        fields.document = isObject ? place : nil
                    } else if key.isEqual(to: "documents") {
                        var places: [Range<Int>] = []
                        let isArray = try reader.array { element throws(JSONError) in
                            let place = try element.slice()
                            if places.count <= ObjectLimits.objects { places.append(place) }
                        }
                        fields.documents = isArray ? places : nil
                    }
                }
            }
            guard isObject else { throw AtlasInsert.wrong("the body must be an object") }
            self = fields
        }

        private init() {}
    }

    private static func wrong(_ detail: String) -> HTTPProblem {
        HTTPProblem(status: 400, detail: detail)
    }
}
