package import JSON

// RemoteConfig reads, checks and evaluates templates of remote configuration, as Firebase's REST
// interface and client SDKs have them. Pure: no clock, no socket, no store. What a template says is
// known when it is read: its patterns are compiled and its local times are instants then, so that a
// fetch only compares.
//
// `ConfigTemplate` is what may be published, `CompiledConfig` one version of it as app instances ask
// for it, `ConfigFetch` what one of them says of itself.

/// Whose templates these are.
package enum ConfigNamespace: String, Sendable, CaseIterable {
    /// Client templates: evaluated here, fetched by app instances.
    case firebase
    /// Server templates: checked here, evaluated by the Admin SDKs.
    case server = "firebase-server"
}

/// A template that holds by all rules of its namespace, in one form: `valueType` is always there,
/// `version` never.
package struct ConfigTemplate: Sendable, Equatable {
    package static let maximumParameters = 3000
    package static let maximumConditions = 2000
    /// Unicode scalars, as all lengths are.
    package static let maximumKeyLength = 256
    package static let maximumGroupNameLength = 256
    package static let maximumGroupDescriptionLength = 256
    package static let maximumDescriptionLength = 256
    package static let maximumConditionNameLength = 256
    package static let maximumVersionDescriptionLength = 1024
    /// Of all values together.
    package static let maximumValuesLength = 1_000_000

    /// What a project has before its first publish.
    package static let empty = ConfigTemplate()

    /// `conditions`, `parameters` and `parameterGroups`, their members in the order given.
    package let object: JSONObject
    /// `version.description`, the one part of a version that its publisher sets; empty where none is.
    package let versionDescription: String
    /// Of namespace `firebase`, in the order of priority.
    let conditions: [(name: String, expression: ConfigExpression)]
    /// Those of the groups too.
    let parameters: [ConfigParameter]
    /// What the patterns of its conditions take of memory.
    package let patternBytes: Int

    private init() {
        object = ["conditions": [], "parameters": [:], "parameterGroups": [:]]
        versionDescription = ""
        conditions = []
        parameters = []
        patternBytes = 0
    }

    /// Reads and checks a template.
    ///
    /// - Parameters:
    ///   - json: The template.
    ///   - namespace: Whose rules it is checked by.
    ///   - isStored: It was published before: what its patterns cost is bounded where they are
    ///     evaluated, and is no error here.
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

/// Why a template does not hold: the place and the reason, as in `parameter welcome:
/// personalizationValue is not supported`.
package struct ConfigTemplateError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(_ place: String, _ problem: String) {
        description = place.isEmpty ? problem : "\(place): \(problem)"
    }
}

struct ConfigParameter: Sendable {
    enum Value: Sendable, Equatable {
        case text(String)
        /// The app keeps what is compiled into it.
        case inAppDefault
    }

    let key: String
    let defaultValue: Value?
    /// By the names of conditions.
    let conditionalValues: [(condition: String, value: Value)]
}

extension ConfigTemplate {
    /// A stored server template as all Admin SDKs read it; see `ServerCondition.served`.
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

    /// Of a value from outside, what an error may repeat: a text in quotes, a number as it came.
    var shown: String {
        switch self {
        case .string(let text): "\"\(text.shown)\""
        case .null, .bool, .integer, .double, .number: text.shown
        case .array, .object: kindShown
        }
    }
}

extension String {
    /// How long it is, as the limits count.
    var scalarCount: Int { unicodeScalars.count }

    /// Of a text from outside, what an error may repeat.
    var shown: String {
        var result = ""
        for scalar in unicodeScalars.prefix(100) {
            result.unicodeScalars.append(scalar.value < 0x20 || scalar.value == 0x7F ? " " : scalar)
        }
        return result
    }
}
