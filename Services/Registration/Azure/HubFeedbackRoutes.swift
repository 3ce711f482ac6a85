import Cryptography
import Door
import HTTPServer
import JSON
import PushCore
import PushStorage

/// The channels that the push services called dead.
extension AzureSurface {
    var feedbackRoutes: [SurfaceRoute] {
        on(.get, "feedbackcontainer", .manage) { request, caller in
            let expiry = Instant.now().seconds + Self.feedbackLifetime
            let hub = request.pathParameters["hub"] ?? ""
            let signature = Self.signature(
                hub: caller.appID,
                expiry: "\(expiry)",
                key: caller.masterKey ?? ""
            )
            return .text(
                "\(request.outsideBase)/\(hub)/feedback?se=\(expiry)&sig=\(signature)"
            )
        } + [
            // Its address is its credential, as that of the original's container is.
            SurfaceRoute(
                .get,
                "/:hub/feedback",
                appName: "hub",
                handler: .anybody { request, visit in
                    let caller = try await visit.admit(try Self.feedbackProof(request))
                    return try await feedback(of: caller.appID)
                }
            )
        ]
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
    private static func feedbackProof(_ request: HTTPServerRequest) throws(AzureError) -> Proof {
        let hub = request.pathParameters["hub"] ?? ""
        let expiry = request.queryValue("se") ?? ""
        let presented = request.queryValue("sig") ?? ""
        guard let seconds = Int64(expiry), seconds > Instant.now().seconds else {
            throw AzureError.badToken
        }
        return Proof(app: hub, anyCase: true, rights: .master) { key in
            constantTimeEqual(presented, signature(hub: hub, expiry: expiry, key: key))
        }
    }

    /// A line of JSON for each dead channel, the latest first.
    private func feedback(of app: String) async throws -> HTTPServerResponse {
        let dead = try await database.installations.deadChannels(
            app: app,
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
