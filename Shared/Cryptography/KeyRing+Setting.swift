package import Settings

extension KeyRing {
    /// Its value is a secret.
    package static let variable = Setting<KeyRing>.secret(
        "CARILLON_MASTER_KEYS",
        takes: "id:base64(32 bytes),…",
        "the keys that credentials and the apps' keys are sealed under: the first seals, all open"
    ) { text in
        try KeyRing(text)
    }
}
