import JSON
import Postgres
package import PushCore
import Storage

/// An installation whose channel a push service reported dead.
package struct DeadChannel: Sendable, Equatable {
    /// The installation with the fields that identify it and its channel; no others are read.
    package var installation: Installation
    package var at: Instant
}

extension InstallationStore {
    /// Returns the dead channels, the latest first: at most `limit` of them, and at most
    /// `maximumBytes`. Installations that were only silent, or had expired, are left out.
    package func deadChannels(
        app: String,
        limit: Int,
        maximumBytes: Int = 4 * 1024 * 1024
    ) async throws -> [DeadChannel] {
        try await database.execute(
            """
            SELECT * FROM (
                SELECT *, sum(300 + octet_length(object_id) + coalesce(octet_length(token), 0)
                    + coalesce(octet_length(identity), 0) + octet_length(fields::text))
                    OVER (ORDER BY invalidated_at DESC, object_id) AS bytes
                FROM (
                    SELECT object_id, device_type, provider, token, identity, installation_id,
                        invalid_reason, invalidated_at,
                        jsonb_strip_nulls(jsonb_build_object(
                            'deviceToken', fields->'deviceToken',
                            'registrationId', fields->'registrationId',
                            'subscriptionUri', fields->'subscriptionUri',
                            '_azure', jsonb_build_object(
                                'platform', fields->'_azure'->'platform',
                                'pushChannel', fields->'_azure'->'pushChannel'))) AS fields
                    FROM installations
                    WHERE app = $1 AND NOT valid AND invalid_reason IS NOT NULL
                        AND invalidated_at IS NOT NULL AND invalid_reason <> ALL ($3::text[])
                    ORDER BY invalidated_at DESC, object_id LIMIT $2) dead
            ) counted WHERE bytes <= $4 ORDER BY invalidated_at DESC, object_id
            """,
            [
                .text(app), .integer(min(max(limit, 0), 10_000)),
                .textArray([Installation.inactiveReason, Installation.hubExpiredReason]),
                .integer(maximumBytes),
            ]
        ).rows.map { row in
            let at = try row.instant("invalidated_at")
            var installation = Installation(app: app, objectID: try row.text("object_id"), at: at)
            installation.deviceType = try row.text("device_type")
            installation.platform = try row.textOrNil("provider")
                .flatMap(Platform.init(rawValue:))
            installation.token = try row.textOrNil("token")
            installation.identity = try row.textOrNil("identity")
            installation.installationID = try row.textOrNil("installation_id")
            installation.fields = try row.json("fields").object ?? [:]
            installation.isValid = false
            installation.invalidReason = try row.textOrNil("invalid_reason")
            return DeadChannel(installation: installation, at: at)
        }
    }
}
