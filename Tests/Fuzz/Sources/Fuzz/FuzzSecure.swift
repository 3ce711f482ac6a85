internal import JSON
internal import PushCore

@testable internal import SecurePayload

/// Fuzzes the input of backends and devices for secure payloads. It is parsed or refused by name;
/// accepted content leads to a push that can be sent and does not contain it; and a device belongs
/// to its caller.
///
/// The first byte says what the rest is: content, a device's registration, or a reader's
/// credential.
func fuzzSecure(_ bytes: [UInt8]) {
    guard let kind = bytes.first else { return }
    let rest = Array(bytes.dropFirst())
    switch kind % 3 {
    case 0: fuzzNotification(rest)
    case 1: fuzzRegistration(rest)
    default:
        guard let body = try? SecureBody(rest, known: ["secret", "sealingKey"]) else { return }
        let secret = try? body.text("secret", bytes: 8...1024)
        require(secret.flatMap(\.self)?.isEmpty != true, "an empty secret is taken")
        _ = try? body.text("sealingKey", bytes: 1...1024)
    }
}

private func fuzzNotification(_ bytes: [UInt8]) {
    guard let wanted = try? NewNotification(bytes) else { return }
    require(!wanted.payload.isEmpty && !wanted.identity.isEmpty, "nothing, or nobody's, is taken")
    let ring = SecurePush(
        id: "12",
        identity: wanted.identity,
        tag: wanted.tag,
        visibleText: wanted.visibleText,
        expiresAt: Instant(seconds: 1_800_000_000)
    )
    guard let request = try? PushRequest.parse(ring.request, now: Instant(seconds: 1_799_999_000))
    else { fatalError("it cannot be rung for: \(JSONValue.object(ring.request).text)") }
    guard case .installations(let selectors) = request.audience else {
        fatalError("it rings for others")
    }
    require(selectors.identities == [wanted.identity], "it rings for others")
    guard let text = wanted.visibleText else { return }
    let toast = request.native.wns?["body"]?.string ?? ""
    require(toast.utf8.count <= 5000, "\(text) makes a toast of \(toast.utf8.count) bytes")
    require(
        SecurePush.xml(text).unicodeScalars.allSatisfy { scalar in
            scalar.value >= 0x20 || scalar == "\t" || scalar == "\n"
        },
        "\(text) is no text of XML"
    )
}

private func fuzzRegistration(_ bytes: [UInt8]) {
    guard let wanted = try? DeviceRegistration(bytes, of: "ann") else { return }
    var installation = Installation(app: "shop", objectID: "1", at: .now())
    guard (try? wanted.put(into: &installation, now: .now())) != nil else { return }
    require(installation.identity == "ann", "a device is another's")
    require(installation.channels.holds("username:ann"), "a device is not among its user's")
    let users = installation.channels.count { $0.lowercased().utf8.starts(with: "username:".utf8) }
    require(users == 1, "a device is among another's")
}
