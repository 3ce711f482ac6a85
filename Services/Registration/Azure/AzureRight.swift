/// The rights of a shared access key; each includes those before it.
enum AzureRight: Sendable {
    /// Register a device, and read its registration.
    case listen
    case send
    case manage
}
