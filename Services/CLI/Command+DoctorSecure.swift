import Cryptography
import PushCore
import PushStorage

/// What secure payloads need, and what is the matter with them.
extension Doctor {
    /// Longer than expired content may stay, by what is promised.
    private static let patience = Duration.seconds(120)

    mutating func examineSecure(_ database: PushDatabase, _ keys: KeyRing?) async throws {
        var isWell = true
        if let keys {
            let unknown = try await database.sealed.secureHeads().filter { head in
                KeyRing.keyID(of: head.head).map { !keys.keyIDs.contains($0) } ?? true
            }
            for head in unknown {
                let id = KeyRing.keyID(of: head.head).map { "the key \($0)" } ?? "no key at all"
                isWell = false
                found(
                    "secure payloads",
                    .failed,
                    "\(head.count) are under \(id), which CARILLON_MASTER_KEYS do not hold"
                )
            }
        }
        if let overdue = try await database.securePayloads.overdue(by: Self.patience) {
            isWell = false
            found(
                "secure payloads",
                .warning,
                "\(overdue.count) are over since \(overdue.since.iso8601) and still have their"
                    + " content: does a secure-payload service run?"
            )
        }
        if let app = try await database.apps.secureUnnamed()?.id,
            try await !database.identitySecrets.hasProofs(app: app)
        {
            isWell = false
            found(
                "secure payloads \(app)",
                .warning,
                "secure-unnamed is on, and nobody can prove an identity: carillon login set \(app),"
                    + " or carillon identity set-secret \(app)"
            )
        }
        if isWell { found("secure payloads", .ok, "what is over is gone") }
    }
}
