import Postgres
package import PushCore
import Storage

/// Some devices of an audience, by what a push's text depends on.
package struct AudienceSample: Sendable, Equatable {
    /// The devices that were looked at.
    package var devices: Int
    /// How many of them have this locale; those without one have an empty one.
    package var locales: [String: Int]
    /// How many of them have no value that can be shown, by the fields that were asked for.
    package var missing: [String: Int]

    package init(devices: Int = 0, locales: [String: Int] = [:], missing: [String: Int] = [:]) {
        self.devices = devices
        self.locales = locales
        self.missing = missing
    }
}

extension InstallationStore {
    private static let sampled = 2000

    /// Looks at up to 2,000 reachable devices of an audience, those that the database finds first. So it
    /// reads no large audience as a whole.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - selectors: The audience.
    ///   - fields: Fields of installations, or paths of names with dots: `PushRequest.templateFields`.
    ///   - limit: The time limit in milliseconds.
    /// - Returns: The numbers of these devices.
    /// - Throws: As `explain`; `isStatementTimeout` if the time was too short.
    package func sample(
        app: String,
        _ selectors: PushRequest.Selectors,
        fields: [String],
        withinMilliseconds limit: Int
    ) async throws -> AudienceSample {
        if selectors.selectsNothing { return AudienceSample() }
        var parameters: [PostgresValue] = [.text(app)]
        let conditions = try selectors.conditions(&parameters, app: app)
        var missing: [String] = []
        for (index, field) in fields.enumerated() {
            parameters.append(.text(field))
            missing.append(
                """
                count(*) FILTER (WHERE NOT EXISTS (SELECT FROM (
                    SELECT \(TemplateFields.value(of: "$\(parameters.count)", of: "m")) AS v) AS f
                    WHERE jsonb_typeof(v) IN ('string', 'number', 'boolean') AND v <> '""'))
                    AS missing\(index)
                """
            )
        }
        let arguments = parameters
        let columns = (["coalesce(m.locale, '') AS locale", "count(*) AS count"] + missing)
            .joined(separator: ", ")
        let rows = try await database.asking { transaction in
            try await transaction.pipeline(
                [
                    (ConditionPlan.sql, []),
                    (
                        "SELECT set_config('statement_timeout', $1, true)",
                        [.text(String(max(1, limit)))]
                    ),
                    (
                        """
                        SELECT \(columns) FROM (
                            SELECT * FROM installations n
                            WHERE n.app = $1 AND n.valid AND n.token IS NOT NULL\(conditions)
                            LIMIT \(Self.sampled)) AS m
                        GROUP BY 1
                        """, arguments
                    ),
                ],
                isPrepared: false
            )[2].rows
        }
        var sample = AudienceSample()
        for row in rows {
            let count = try row.integer("count")
            sample.devices += count
            sample.locales[try row.text("locale"), default: 0] += count
            for (index, field) in fields.enumerated() {
                sample.missing[field, default: 0] += try row.integer(.name("missing\(index)"))
            }
        }
        return sample
    }
}

/// The fields of an installation that a push may have placeholders for.
package enum TemplateFields {
    /// Makes the expression of a field's value, as `jsonb`.
    ///
    /// - Parameters:
    ///   - field: An expression of type `text`: a field's name, or a path of names with dots.
    ///   - row: The installation's name in the statement.
    /// - Returns: An expression; null if the installation has no such field.
    package static func value(of field: String, of row: String) -> String {
        """
        (jsonb_build_object('objectId', \(row).object_id,
            'deviceType', \(row).device_type, 'installationId', \(row).installation_id,
            'timeZone', \(row).time_zone, 'vendor', \(row).vendor,
            'deviceProfile', \(row).device_profile, 'apnsTopic', \(row).apns_topic)
            || \(row).fields) #> string_to_array(\(field), '.')
        """
    }
}
