import Apps
import Cryptography
import Door
import HTTPServer
import JSON
import PushCore
import PushStorage

/// The channels that the push services called dead.
extension AzureSurface {
    func addFeedbackRoutes(to router: inout Router) {
        on(.get, "feedbackcontainer", .manage, in: &router) { request, caller in
            let expiry = Instant.now().seconds + Self.feedbackLifetime
            let hub = request.pathParameters["hub"] ?? ""
            let signature = Self.signature(
                hub: caller.app.id,
                expiry: "\(expiry)",
                key: caller.app.masterKey
            )
            return .text(
                "\(request.outsideBase)/\(hub)/feedback?se=\(expiry)&sig=\(signature)"
            )
        }
        // Its address is its credential, as that of the original's container is.
        router.on(.get, "/:hub/feedback") { request in
            try await answer(request, as: "GET /:hub/feedback") { visit in
                try await feedback(of: try await authenticateFeedback(request, visit))
            }
        }
    }

    /// Seconds.
    private static let feedbackLifetime: Int64 = 3600
    private static let feedbackPage = 10_000

    /// A hub has one name, whatever its case.
    private static func signature(hub: String, expiry: String, key: String) -> String {
        let message = Array("carillon feedback\n\(AppID.folded(hub))\n\(expiry)".utf8)
        return Base64.encodeURL(hmacSHA256(key: Array(key.utf8), message))
    }

    /// Whoever has the address that the master key was given may read it: the door counts who guesses
    /// one, and writes down who had it.
    private func authenticateFeedback(
        _ request: HTTPServerRequest,
        _ visit: Visit
    ) async throws -> AppAccess {
        let hub = request.pathParameters["hub"] ?? ""
        let expiry = request.queryValue("se") ?? ""
        let presented = request.queryValue("sig") ?? ""
        guard let seconds = Int64(expiry), seconds > Instant.now().seconds else {
            throw AzureError.badToken
        }
        return try await visit.admit(app: .folded(hub), rights: .master) { key in
            constantTimeEqual(presented, Self.signature(hub: hub, expiry: expiry, key: key))
        }
    }

    /// A line of JSON for each dead channel, the latest first.
    private func feedback(of app: AppAccess) async throws -> HTTPServerResponse {
        let dead = try await database.installations.deadChannels(
            app: app.id,
            limit: Self.feedbackPage
        )
        var lines = ""
        for channel in dead {
            let seen = HubInstallation(channel.installation)
            var line: JSONObject = [
                "InstallationId": .string(seen.id),
                "Platform": .string(seen.platform.rawValue),
                "PnsHandle": seen.channel.pushChannel,
                "Reason": .string(channel.installation.invalidReason ?? ""),
                "InvalidatedAt": .string(channel.at.iso8601),
            ]
            if let userID = seen.userID { line["UserId"] = .string(userID) }
            lines += JSONValue.object(line).text + "\n"
        }
        return .text(lines, contentType: "application/x-ndjson; charset=utf-8")
    }
}
