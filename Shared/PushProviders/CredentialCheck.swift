package import JSON
package import PushCore

/// The result of a credential's check: whether the provider accepts it, with its message.
package struct CredentialCheckResult: Equatable, Sendable {
    package var isTaken: Bool
    package var detail: String

    package init(isTaken: Bool, detail: String) {
        self.isTaken = isTaken
        self.detail = detail
    }
}

extension ProviderClients {
    /// Checks a credential with its provider, without a push to any device. FCM and WNS are asked
    /// for an access token. APNs has no such request: it gets a silent message to a device token of
    /// zeros, in both environments. It checks the provider token and the topic before it rejects
    /// the device token. MPNS offers no check, so only the certificate is parsed. On the loop.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - platform: The provider.
    ///   - name: The topic for APNs.
    ///   - secret: The opened credential.
    /// - Returns: The result; for APNs it names the environments.
    package func check(
        app: String,
        _ platform: Platform,
        name: String,
        secret: JSONObject
    ) async -> CredentialCheckResult {
        do {
            switch platform {
            case .apns: return try await checkAPNs(app: app, name: name, secret)
            case .fcm: return await Self.check(try makeFCMTokens(secret).1)
            case .wns: return await Self.check(try makeWNSTokens(secret))
            case .mpns:
                _ = try MPNSCredential(secret: secret)
                return CredentialCheckResult(
                    isTaken: true,
                    detail: "can be read; no provider was asked"
                )
            case .connection:
                return CredentialCheckResult(
                    isTaken: false,
                    detail: "connections have no credential"
                )
            }
        } catch {
            return CredentialCheckResult(isTaken: false, detail: "\(error)")
        }
    }

    private static func check(_ tokens: AccessTokenSource) async -> CredentialCheckResult {
        let result = await withCheckedContinuation { answer in
            tokens.withToken { answer.resume(returning: $0) }
        }
        return switch result {
        case .success: CredentialCheckResult(isTaken: true, detail: "an access token was given")
        case .failure(let refusal): CredentialCheckResult(isTaken: false, detail: refusal.reason)
        }
    }

    /// Checks both environments: a certificate or a newer key may be valid for only one.
    private func checkAPNs(
        app: String,
        name: String,
        _ secret: JSONObject
    ) async throws -> CredentialCheckResult {
        var taking: [String] = []
        var refusing: [String] = []
        for environment in [PushEnvironment.production, .sandbox] {
            let key = Key(app: app, provider: .apns, environment: environment, name: name)
            let client = try client(for: key, version: 0) { secret }
            let answer = await withCheckedContinuation { continuation in
                client.send([Self.question(environment)]) { _, answer in
                    continuation.resume(returning: answer)
                }
            }
            if Self.isTaken(answer) {
                taking.append(environment.rawValue)
            } else {
                let reason = answer.reason ?? answer.outcome.metricLabel
                refusing.append("\(environment.rawValue): \(reason)")
            }
        }
        return CredentialCheckResult(
            isTaken: !taking.isEmpty,
            detail: (taking.isEmpty ? refusing : [taking.joined(separator: ", ")] + refusing)
                .joined(separator: "; ")
        )
    }

    private static func isTaken(_ answer: ProviderAnswer) -> Bool {
        switch answer.outcome {
        case .accepted, .unregistered: true
        // The device token is invalid, but the credential and the topic were accepted.
        case .rejected: answer.reason == "BadDeviceToken"
        case .mismatched, .misconfigured, .unavailable, .throttled, .noAnswer, .notSent: false
        }
    }

    private static func question(_ environment: PushEnvironment) -> OutgoingNotification {
        OutgoingNotification(
            notificationID: "00000000-0000-4000-8000-000000000000",
            target: DeviceTarget(
                provider: .apns,
                token: String(repeating: "0", count: 64),
                environment: environment
            ),
            payload: RenderedPayload(
                platform: .apns,
                headers: [.init("apns-push-type", "background"), .init("apns-priority", "5")],
                body: Array(#"{"aps":{"content-available":1}}"#.utf8),
                repeatOverwrites: true
            ),
            // So APNs does not store the message.
            expiration: 0
        )
    }
}
