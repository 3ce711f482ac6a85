internal import JSON

/// The reason why a credential is invalid. It names the field and never contains its value.
package struct CredentialError: Error, Equatable, Sendable, CustomStringConvertible {
    package let field: String
    package let problem: String

    package init(_ field: String, _ problem: String) {
        self.field = field
        self.problem = problem
    }

    package var description: String { "\(field): \(problem)" }
}

/// A reader of the fields of a credential's opened secret.
struct CredentialFields {
    let object: JSONObject

    func text(_ field: String) throws(CredentialError) -> String {
        guard let value = try optionalText(field) else {
            throw CredentialError(field, "is missing")
        }
        return value
    }

    func optionalText(_ field: String) throws(CredentialError) -> String? {
        guard let value = object[field], !value.isNull else { return nil }
        guard let text = value.string else {
            throw CredentialError(field, "must be a string, not a \(value.kind)")
        }
        guard !text.isEmpty, text.utf8.count <= 65_536 else {
            throw CredentialError(field, "must be 1 to 65536 bytes long")
        }
        return text
    }
}

/// Whether a string can be used in a header or a path unchanged.
func isPrintable(_ text: String) -> Bool {
    text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
}
