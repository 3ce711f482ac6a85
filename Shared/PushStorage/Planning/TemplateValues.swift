import InstallationStorage
import JSON
import Postgres
import PushCore
import Storage

/// The fields of an installation that a push has placeholders for. They are read once, when its
/// delivery is planned, so that a retry sends the same notification.
package enum TemplateValues {
    /// The most characters of a value that are stored. A longer value is too long for every
    /// platform.
    private static let maximumLength = 8192

    /// Returns the values of one installation.
    ///
    /// - Parameters:
    ///   - fields: An expression of type `text[]`; null if there are no placeholders.
    ///   - row: The installation's name in the statement.
    /// - Returns: An expression: a `json` object of strings by field, or null if there is no value. A
    ///   template of Azure's is its JSON.
    package static func sql(_ fields: String, of row: String) -> String {
        """
        (SELECT json_object_agg(t.field, left(t.value #>> '{}', \(maximumLength)))
            FROM (SELECT u.field, \(TemplateFields.value(of: "u.field", of: row)) AS value
                FROM unnest(\(fields)) AS u(field)) t
            WHERE jsonb_typeof(t.value) IN ('string', 'number', 'boolean')
                OR jsonb_typeof(t.value) = 'object' AND t.field LIKE '\\_azure.templates.%')
        """
    }

    /// Returns the fields of a push as one element of an array of strings.
    static func joined(_ request: PushRequest) -> String? {
        request.templateFields.isEmpty ? nil : request.templateFields.joined(separator: ",")
    }
}
