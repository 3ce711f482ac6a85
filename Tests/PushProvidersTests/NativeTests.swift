import JSON
import PushCore
import Testing

@testable import PushProviders

@Suite("Native payloads", .timeLimit(.minutes(1)))
struct NativeTests {
    private func template(_ platform: Platform, _ native: JSONObject) throws -> PayloadTemplate {
        let request = try PushRequest.parse(["native": .object(native)], now: .now())
        return try PayloadTemplate.render(request, pushID: "p", for: platform)
    }

    private func text(_ count: Int) -> JSONValue { .string(String(repeating: "x", count: count)) }

    @Test("Each native payload is checked by its provider's own limit, to the byte")
    func limits() throws {
        // {"k":""} is eight bytes.
        _ = try template(.apns, ["apns": ["payload": ["k": text(4088)]]])
        #expect(throws: RenderingError.tooLarge(bytes: 4097, limit: 4096)) {
            try template(.apns, ["apns": ["payload": ["k": text(4089)]]])
        }
        let voip: JSONValue = ["apns-push-type": "voip"]
        _ = try template(.apns, ["apns": ["headers": voip, "payload": ["k": text(5112)]]])
        #expect(throws: RenderingError.tooLarge(bytes: 5121, limit: 5120)) {
            try template(.apns, ["apns": ["headers": voip, "payload": ["k": text(5113)]]])
        }
        _ = try template(.fcm, ["fcm": ["message": ["data": ["k": text(4095)]]]])
        #expect(throws: RenderingError.tooLarge(bytes: 4097, limit: 4096)) {
            try template(.fcm, ["fcm": ["message": ["data": ["k": text(4096)]]]])
        }
        #expect(throws: RenderingError.tooLarge(bytes: 4097, limit: 4096)) {
            try template(.fcm, ["fcm": ["message": ["android": ["data": ["k": text(4096)]]]]])
        }
        _ = try template(.wns, ["wns": ["type": "wns/raw", "body": text(5000)]])
        #expect(throws: RenderingError.tooLarge(bytes: 5001, limit: 5000)) {
            try template(.wns, ["wns": ["type": "wns/raw", "body": text(5001)]])
        }
    }

    @Test("A platform without a message in the push gets no message")
    func others() {
        for platform in [Platform.fcm, .wns, .mpns] {
            #expect(throws: RenderingError.noContent(platform)) {
                try template(platform, ["apns": ["payload": ["aps": [:]]]])
            }
        }
    }

    @Test("A native payload has no language variant, placeholder or badge of ours")
    func untouched() throws {
        let payload: JSONValue = [
            "aps": ["alert": "{{name}}", "badge": 3], "alert-fr": "x", "collapse-id": "y",
        ]
        let template = try template(.apns, ["apns": ["payload": payload]])
        #expect(!template.isPersonal)
        #expect(try template.payload(values: ["name": "Ann"]).body == payload.bytes)
    }
}
