package import Settings

extension KeyRing {
    /// The variable; its value is a secret.
    package static let variable = Setting<KeyRing>.secret(
        "CARILLON_MASTER_KEYS",
        takes: "id:base64(32 bytes),…",
        "master keys of all stored secrets: the first seals, all open"
    ) { text in
        try KeyRing(text)
    }
}
