import HTTPServer
import JSON

/// The body of an insert.
struct AtlasInsert: Sendable {
    let collection: String
    let documents: [JSONValue]
    let isMany: Bool

    /// - Throws: 400 that names the field, 413 for too many documents.
    init(_ body: [UInt8], isMany: Bool) throws {
        let value = try JSONValue.parse(
            body,
            maximumDepth: ObjectLimits.levelsOfBody,
            maximumValues: ObjectLimits.valuesOfBody
        )
        guard let object = value.object else { throw Self.wrong("the body must be an object") }
        // They name where it went in Atlas; here the app and the type do.
        for name in ["dataSource", "database", "collection"] {
            guard let text = object[name]?.string, !text.isEmpty else {
                throw Self.wrong("\(name) must be a text")
            }
        }
        self.isMany = isMany
        collection = object["collection"]?.string ?? ""
        if isMany {
            guard let documents = object["documents"]?.array, !documents.isEmpty else {
                throw Self.wrong("documents must be an array that is not empty")
            }
            guard documents.count <= ObjectLimits.objects else {
                throw HTTPProblem(
                    status: 413,
                    detail: "documents: at most \(ObjectLimits.objects) at once"
                )
            }
            self.documents = documents
        } else {
            guard let document = object["document"], document.object != nil else {
                throw Self.wrong("document must be an object")
            }
            documents = [document]
        }
    }

    private static func wrong(_ detail: String) -> HTTPProblem {
        HTTPProblem(status: 400, detail: detail)
    }
}
