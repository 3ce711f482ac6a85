package import JSON

/// The description of a route for its callers, beside the route; the source of `/openapi.json`.
package struct RouteDescription: Sendable {
    /// A parameter of the query or the headers, or of the path if its schema differs from the
    /// service's schema of that name.
    package struct Parameter: Sendable {
        package let name: String
        /// `query`, `header` or `path`.
        package let place: String
        package let schema: JSONValue
        package let note: String?
        /// Whether a call without it is refused. A parameter of the path always is.
        package var isRequired = false

        /// The same parameter, without which a call is refused.
        package var required: Self {
            var parameter = self
            parameter.isRequired = true
            return parameter
        }

        package static func query(
            _ name: String,
            _ schema: JSONValue = ["type": "string"],
            _ note: String? = nil
        ) -> Self { Self(name: name, place: "query", schema: schema, note: note) }

        package static func path(_ name: String, _ schema: JSONValue) -> Self {
            Self(name: name, place: "path", schema: schema, note: nil)
        }

        package static func header(
            _ name: String,
            _ schema: JSONValue = ["type": "string"],
            _ note: String? = nil
        ) -> Self { Self(name: name, place: "header", schema: schema, note: note) }
    }

    /// The shape of a body, in each of its media types.
    package struct Content: Sendable {
        package let types: [String]
        package let schema: JSONValue

        package init(_ types: String..., schema: JSONValue = [:]) {
            self.init(types: types, schema: schema)
        }

        package init(types: [String], schema: JSONValue) {
            self.types = types
            self.schema = schema
        }

        package static func json(_ schema: JSONValue = [:]) -> Self {
            Self("application/json", schema: schema)
        }

        /// Returns JSON content with one of the service's own schemas.
        package static func json(named name: String) -> Self { json(.schema(named: name)) }
    }

    package struct Answer: Sendable {
        package let status: Int
        package let note: String
        package let content: Content?

        package init(_ status: Int, _ note: String = "Done", _ content: Content? = nil) {
            self.status = status
            self.note = note
            self.content = content
        }
    }

    package let summary: String
    /// The security schemes of which one is needed; empty: no authentication.
    package let schemes: [[String]]
    package let parameters: [Parameter]
    package let body: Content?
    /// Whether a call without a body is refused.
    package let needsBody: Bool
    package let answers: [Answer]
    /// Any other response.
    package let refusal: Content?

    /// - Parameters:
    ///   - summary: The effect of the route.
    ///   - schemes: Names of the service's security schemes, of which one is needed.
    ///   - parameters: The parameters of the query and the headers; the path's parameters follow
    ///     from the pattern.
    ///   - body: The request body.
    ///   - needsBody: Whether a call without a body is refused.
    ///   - answers: The successful responses.
    ///   - refusal: The error body; problem details by default.
    package init(
        _ summary: String,
        for schemes: [[String]],
        parameters: [Parameter] = [],
        body: Content? = nil,
        needsBody: Bool = false,
        answers: [Answer] = [Answer(200)],
        refusal: Content? = .problem
    ) {
        self.summary = summary
        self.schemes = schemes
        self.parameters = parameters
        self.body = body
        self.needsBody = needsBody
        self.answers = answers
        self.refusal = refusal
    }
}

extension RouteDescription.Content {
    /// Problem details, which the document describes for every service.
    package static var problem: Self {
        Self("application/problem+json", schema: .schema(named: "Problem"))
    }
}

extension JSONValue {
    /// Refers to one of the document's schemas.
    package static func schema(named name: String) -> JSONValue {
        ["$ref": .string("#/components/schemas/" + name)]
    }

    /// Returns the schema of an object.
    ///
    /// - Parameters:
    ///   - needed: Required properties.
    ///   - optional: Optional properties.
    ///   - isClosed: Whether other properties are forbidden.
    /// - Returns: The schema.
    package static func schema(
        ofObject needed: JSONObject,
        optional: JSONObject = [:],
        isClosed: Bool = false
    ) -> JSONValue {
        var properties = needed
        for (name, schema) in optional { properties[name] = schema }
        var schema: JSONObject = ["type": "object", "properties": .object(properties)]
        if !needed.isEmpty { schema["required"] = .array(needed.keys.map(JSONValue.string)) }
        if isClosed { schema["additionalProperties"] = false }
        return .object(schema)
    }

    package static func schema(ofArray items: JSONValue) -> JSONValue {
        ["type": "array", "items": items]
    }
}
