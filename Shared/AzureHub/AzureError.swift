/// An error in the form of Azure's clients: `Error` with `Code` before `Detail`, no prefix, no attribute,
/// under every status except 2xx.
package struct AzureError: Error, Equatable, CustomStringConvertible {
    package let status: Int
    /// Shown to the client.
    package let description: String

    package init(status: Int = 400, _ description: String) {
        self.status = status
        self.description = description
    }

    package static func notSupported(_ what: String) -> AzureError {
        AzureError(status: 501, "\(what) is not supported by this service.")
    }
}
