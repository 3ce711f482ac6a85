/// What a shared access key lets its holder do, each right including those before it.
enum AzureRight: Sendable {
    /// Register a device, and read what it registered.
    case listen
    case send
    case manage
}
