import AzureHub

extension AzureError {
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

    static let installationNotFound = AzureError(status: 404, "Installation not found")
    static let notificationNotFound = AzureError(status: 404, "Notification not found")
}
