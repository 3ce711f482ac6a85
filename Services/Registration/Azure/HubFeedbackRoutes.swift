import AzureHub
import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore

/// The channels that push services reported as dead.
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
            // The URL contains its credential, like the URL of the container in Azure's feedback.
            SurfaceRoute(
                .get,
                "/:hub/feedback",
                appName: "hub",
                handler: .unauthenticated { request, context in
                    let caller = try await context.admit(try Self.feedbackProof(request))
                    return try await feedback(of: caller.appID)
                }
            )
        ]
    }

    /// The lifetime of a URL, in seconds.
    private static let feedbackLifetime: Int64 = 3600
    private static let feedbackPage = 10_000

    /// Signs the folded name of a hub, as its case does not matter, and the expiry.
    private static func signature(hub: String, expiry: String, key: String) -> String {
        let message = Array("carillon feedback\n\(AppID.folded(hub))\n\(expiry)".utf8)
        return Base64.encodeURL(hmacSHA256(key: Array(key.utf8), message))
    }

    /// Returns the proof that the URL was issued to a caller with the master key. Any client that
    /// has the URL may read the feedback. The gateway counts wrong signatures and audits reads.
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

    /// Returns a line of JSON for each dead channel, the latest first.
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
