import Cryptography
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
                of: caller.app,
                expiry: "\(expiry)",
                key: caller.app.masterKey
            )
            return .text(
                "\(request.outsideBase)/\(hub)/feedback?se=\(expiry)&sig=\(signature)"
            )
        }
        // Its address is its credential, as that of the original's container is.
        router.on(.get, "/:hub/feedback") { request in
            let tracking = AzureTracking(request)
            do {
                return tracking.sign(try await feedback(request))
            } catch {
                guard let error = AzureSurface.error(for: error) else { throw error }
                return tracking.response(to: error)
            }
        }
    }

    /// Seconds.
    private static let feedbackLifetime: Int64 = 3600
    private static let feedbackPage = 10_000

    private static func signature(of app: AppAccess, expiry: String, key: String) -> String {
        let message = Array("carillon feedback\n\(app.id)\n\(expiry)".utf8)
        return Base64.encodeURL(hmacSHA256(key: Array(key.utf8), message))
    }

    /// A line of JSON for each dead channel, the latest first.
    private func feedback(_ request: HTTPServerRequest) async throws -> HTTPServerResponse {
        let expiry = request.queryValue("se") ?? ""
        guard let seconds = Int64(expiry), seconds > Instant.now().seconds,
            let app = try await apps.hub(request.pathParameters["hub"] ?? ""),
            app.accepts(
                .master,
                { key in
                    constantTimeEqual(
                        request.queryValue("sig") ?? "",
                        Self.signature(of: app, expiry: expiry, key: key)
                    )
                }
            )
        else { throw AzureError.badToken }
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
