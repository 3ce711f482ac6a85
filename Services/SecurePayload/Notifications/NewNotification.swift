import JSON
import PushCore

/// The content that a backend asks to store, parsed from its request.
struct NewNotification: Equatable, Sendable {
    static let maximumPayloadBytes = 64 << 10
    static let maximumVisibleBytes = 1 << 10
    static let lifetimes = 60...2_592_000
    static let usualLifetime = 86_400
    /// The maximum length of an `Idempotency-Key`, in characters.
    static let maximumKeyLength = 255
    static let fields: ExactStringSet = [
        "identity", "payload", "visibleText", "tag", "expiresInSeconds", "readOnce", "sealed",
    ]

    let identity: String
    let payload: [UInt8]
    let visibleText: String?
    let tag: String?
    let lifetimeSeconds: Int
    let readOnce: Bool
    let isSealed: Bool

    /// - Throws: `SecureRequestError` with the field's name.
    init(_ bytes: [UInt8]) throws(SecureRequestError) {
        let body = try SecureBody(bytes, known: Self.fields)
        identity = try body.neededText("identity", bytes: 1...SecureIdentity.maximumBytes)
        if let problem = SecureIdentity.problem(identity) { throw SecureRequestError(problem) }
        payload = Array(
            try body.neededText("payload", bytes: 1...Self.maximumPayloadBytes).utf8
        )
        let visible = try body.text("visibleText", bytes: 0...Self.maximumVisibleBytes)
        visibleText = visible?.isEmpty == true ? nil : visible
        if let problem = visibleText.flatMap(SecurePush.problem(ofVisible:)) {
            throw SecureRequestError(problem)
        }
        tag = try body.text("tag", bytes: 1...TagExpression.maximumBytes)
        if let tag {
            do throws(TagExpressionError) {
                _ = try TagExpression.parse(tag)
            } catch {
                throw SecureRequestError("tag cannot be used: \(error.description)")
            }
            guard !tag.utf8.contains(0) else { throw SecureRequestError("tag holds a NUL") }
        }
        lifetimeSeconds =
            try body.number("expiresInSeconds", in: Self.lifetimes) ?? Self.usualLifetime
        readOnce = try body.flag("readOnce")
        isSealed = try body.flag("sealed")
    }
}
