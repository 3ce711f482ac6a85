package import JSON

// RemoteConfig parses, validates and evaluates templates of remote configuration, in the form of
// Firebase's REST interface and client SDKs. Pure: no clock, no socket, no store. A template is
// completely processed when it is read: its patterns are compiled and its local times are instants
// then, so that a fetch only compares.
//
// `ConfigTemplate` is a template to publish, `CompiledConfig` one version of it for the fetches of
// app instances, `ConfigFetch` the request of one of them.

/// The two kinds of templates.
package enum ConfigNamespace: String, Sendable, CaseIterable {
    /// Client templates: evaluated here, fetched by app instances.
    case firebase
    /// Server templates: validated here, evaluated by the Admin SDKs.
    case server = "firebase-server"
}

/// A template that obeys all rules of its namespace, in normal form: with `valueType`, without
/// `version`.
package struct ConfigTemplate: Sendable, Equatable {
    /// The limit of its JSON text, also decompressed.
    package static let maximumBytes = 8 << 20
    /// The limit of values, as a small text can contain millions of arrays.
    private static let maximumValues = 500_000
    private static let maximumDepth = 64
    package static let maximumParameters = 3000
    package static let maximumConditions = 2000
    /// A number of Unicode scalars, like all lengths.
    package static let maximumKeyLength = 256
    package static let maximumGroupNameLength = 256
    package static let maximumGroupDescriptionLength = 256
    package static let maximumDescriptionLength = 256
    package static let maximumConditionNameLength = 256
    package static let maximumVersionDescriptionLength = 1024
    /// The limit of all values together.
    package static let maximumValuesLength = 1_000_000

    /// The template of a project before its first publish.
    package static let empty = ConfigTemplate()

    /// `conditions`, `parameters` and `parameterGroups`, their members in the order given.
    package let object: JSONObject
    /// `version.description`, the only part of a version that its publisher sets; may be empty.
    package let versionDescription: String
    /// The conditions of namespace `firebase`, in the order of priority.
    let conditions: [(name: String, expression: ConfigExpression)]
    /// All parameters, including those in groups.
    let parameters: [ConfigParameter]
    /// The memory of its conditions' compiled patterns.
    package let patternBytes: Int

    private init() {
        object = ["conditions": [], "parameters": [:], "parameterGroups": [:]]
        versionDescription = ""
        conditions = []
        parameters = []
        patternBytes = 0
    }

    /// Parses and validates a template.
    ///
    /// - Parameters:
    ///   - json: The template.
    ///   - namespace: The namespace whose rules apply.
    ///   - isStored: Whether it was published before. If so, the cost of its patterns is limited
    ///     only during evaluation, and is not an error here.
    /// - Throws: `ConfigTemplateError` with the place and the reason.
    package init(
        _ json: JSONValue,
        namespace: ConfigNamespace,
        isStored: Bool = false
    ) throws(ConfigTemplateError) {
        var reader = TemplateReader(namespace, isStored: isStored)
        object = try reader.template(json)
        versionDescription = reader.versionDescription
        conditions = reader.conditions
        parameters = reader.parameters
        patternBytes = reader.patternBytes
    }

    /// Parses and validates the text of a template to publish.
    ///
    /// - Throws: `JSONError`, `ConfigTemplateError`.
    package init(bytes: [UInt8], namespace: ConfigNamespace) throws {
        try self.init(try Self.json(bytes), namespace: namespace)
    }

    /// Parses the JSON of a publisher, within the limits of templates.
    package static func json(_ bytes: [UInt8]) throws(JSONError) -> JSONValue {
        try JSONValue.parse(bytes, maximumDepth: maximumDepth, maximumValues: maximumValues)
    }

    /// The parameters that have a default `value`, those of groups last.
    package var defaults: [(key: String, value: String)] {
        parameters.compactMap { parameter in
            guard case .text(let value) = parameter.defaultValue else { return nil }
            return (parameter.key, value)
        }
    }

    package static func == (left: ConfigTemplate, right: ConfigTemplate) -> Bool {
        left.object == right.object && left.versionDescription == right.versionDescription
    }
}

/// The reason why a template is invalid, with the place, as in
/// `parameter welcome: personalizationValue is not supported`.
package struct ConfigTemplateError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(_ place: String, _ problem: String) {
        description = place.isEmpty ? problem : "\(place): \(problem)"
    }
}

struct ConfigParameter: Sendable {
    enum Value: Sendable, Equatable {
        case text(String)
        /// The app uses the value that is compiled into it.
        case inAppDefault
    }

    let key: String
    let defaultValue: Value?
    /// The values by the names of conditions.
    let conditionalValues: [(condition: String, value: Value)]
}

extension ConfigTemplate {
    /// Returns a stored server template in the form that all Admin SDKs read; see `ServerCondition.served`.
    package static func evaluatedByServers(_ template: JSONObject) -> JSONObject {
        guard let conditions = template["conditions"]?.array else { return template }
        var result = template
        result["conditions"] = .array(conditions.map(ServerCondition.served))
        return result
    }
}

extension JSONValue {
    /// The kind of a value with its article.
    var kindShown: String {
        switch self {
        case .null: "null"
        case .array, .object: "an \(kind)"
        case .bool, .integer, .double, .number, .string: "a \(kind)"
        }
    }

    /// An external value as an error may repeat it: a string in quotes, a number unchanged.
    var shown: String {
        switch self {
        case .string(let text): "\"\(text.shown)\""
        case .null, .bool, .integer, .double, .number: text.shown
        case .array, .object: kindShown
        }
    }
}

extension String {
    /// The length as the limits count it.
    var scalarCount: Int { unicodeScalars.count }

    /// An external string as an error may repeat it.
    var shown: String {
        var result = ""
        for scalar in unicodeScalars.prefix(100) {
            result.unicodeScalars.append(scalar.value < 0x20 || scalar.value == 0x7F ? " " : scalar)
        }
        return result
    }
}
