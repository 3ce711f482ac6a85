import PushCore
import Testing

@testable import PushStorage
@testable import Registration

@Suite("Azure's outcome of a delivery follows from codes")
struct HubOutcomeTests {
    private func outcome(_ reason: String?, status: Int? = nil) -> HubOutcome? {
        HubOutcome(
            DeliveryCount(
                platform: .apns,
                outcome: .failed,
                status: status,
                reason: reason,
                count: 1
            )
        )
    }

    @Test("A refusal of Carillon's own is reported by its code, with or without a detail")
    func local() {
        #expect(outcome("the payload is too large: 9000 bytes of at most 4096") == .invalidSize)
        #expect(outcome("the device's template has expired") == .dropped)
        #expect(outcome("no credential for this provider") == .invalidCredentials)
        #expect(outcome("the apns credential cannot be used") == .invalidCredentials)
        #expect(outcome("token endpoint: invalid_grant", status: 400) == .invalidCredentials)
        #expect(outcome("token endpoint: status 503", status: 503) == .serverError)
        #expect(outcome("malformed token") == .wrongToken)
        #expect(outcome("channel host not allowed") == .badChannel)
    }

    @Test("The text of a provider's reason has no influence on the outcome")
    func words() {
        for reason in [
            "data.key must be a text", "the device's template: credential is missing",
            "data.too large is unknown", "native.apns.has expired must be a number",
            "the payload is too largely nested",
        ] {
            #expect(outcome(reason) == .invalidFormat, "\(reason)")
        }
        #expect(outcome("the payload is too large today", status: 400) == .invalidFormat)
    }
}
