/// An error in the form of Azure's clients: `Error` with `Code` before `Detail`, no prefix, no attribute,
/// under every status except 2xx.
struct AzureError: Error, Equatable, CustomStringConvertible {
    let status: Int
    /// Shown to the client.
    let description: String

    init(status: Int = 400, _ description: String) {
        self.status = status
        self.description = description
    }

    /// One message for any invalid token: an attacker who guesses learns nothing.
    static let badToken = AzureError(
        status: 401,
        "InvalidSignature: The token has an invalid signature."
    )

    static func claimNeeded(_ right: AzureRight) -> AzureError {
        switch right {
        case .listen: .badToken
        case .send: AzureError(status: 403, "Send claim is required for this operation.")
        case .manage: AzureError(status: 401, "Manage claim is required for this operation.")
        }
    }

    static func notSupported(_ what: String) -> AzureError {
        AzureError(status: 501, "\(what) is not supported by this service.")
    }

    static let installationNotFound = AzureError(status: 404, "Installation not found")
    static let notificationNotFound = AzureError(status: 404, "Notification not found")
}
