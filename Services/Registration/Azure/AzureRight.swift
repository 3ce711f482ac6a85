/// The rights of a shared access key; each includes those before it.
enum AzureRight: Sendable {
    /// The right to register a device and to read its registration.
    case listen
    case send
    case manage
}
