import Postgres
import PushCore

extension AppStore {
    /// Returns the id of the app with this name, ignoring case.
    package func id(folding name: String) async throws -> String? {
        try await database.execute(
            "SELECT id FROM apps WHERE id_folded = $1",
            [.text(AppID.folded(name))]
        ).first?.text("id")
    }
}
