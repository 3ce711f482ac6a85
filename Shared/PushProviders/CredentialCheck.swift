package import JSON
package import PushCore

/// Whether a provider takes a credential, and in which words it says so.
package struct CredentialVerdict: Equatable, Sendable {
    package var isTaken: Bool
    package var detail: String

    package init(isTaken: Bool, detail: String) {
        self.isTaken = isTaken
        self.detail = detail
    }
}

extension ProviderDirectory {
    /// Asks a credential's provider whether it takes it, as far as that rings nobody: FCM and WNS for
    /// an access token; APNs, which has no such question, in both environments for a silent message
    /// to a device token of zeros, after the provider token and the topic were judged. MPNS cannot be
    /// asked; its certificate is read. On the loop.
    ///
    /// - Parameters:
    ///   - app: Whose it is.
    ///   - platform: Whose provider's.
    ///   - name: APNs: its topic.
    ///   - secret: The opened credential.
    /// - Returns: What it said; of APNs, in which environments.
    package func check(
        app: String,
        _ platform: Platform,
        name: String,
        secret: JSONObject
    ) async -> CredentialVerdict {
        do {
            switch platform {
            case .apns: return try await checkAPNs(app: app, name: name, secret)
            case .fcm: return await Self.check(try makeFCMTokens(secret).1)
            case .wns: return await Self.check(try makeWNSTokens(secret))
            case .mpns:
                _ = try MPNSCredential(secret: secret)
                return CredentialVerdict(isTaken: true, detail: "can be read; nobody was asked")
            }
        } catch {
            return CredentialVerdict(isTaken: false, detail: "\(error)")
        }
    }

    private static func check(_ tokens: AccessTokenSource) async -> CredentialVerdict {
        let result = await withCheckedContinuation { answer in
            tokens.withToken { answer.resume(returning: $0) }
        }
        return switch result {
        case .success: CredentialVerdict(isTaken: true, detail: "an access token was given")
        case .failure(let refusal): CredentialVerdict(isTaken: false, detail: refusal.reason)
        }
    }

    /// A certificate, and a newer key, may be for one environment alone.
    private func checkAPNs(
        app: String,
        name: String,
        _ secret: JSONObject
    ) async throws -> CredentialVerdict {
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
        return CredentialVerdict(
            isTaken: !taking.isEmpty,
            detail: (taking.isEmpty ? refusing : [taking.joined(separator: ", ")] + refusing)
                .joined(separator: "; ")
        )
    }

    private static func isTaken(_ answer: ProviderAnswer) -> Bool {
        switch answer.outcome {
        case .accepted, .unregistered: true
        // There is no such device: who sends, and under which topic, was in order.
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
            // It is not kept for anybody.
            expiration: 0
        )
    }
}
