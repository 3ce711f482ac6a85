import Postgres
import PushCore

extension AppStore {
    /// The id of the app that is called so but for case.
    package func id(folding name: String) async throws -> String? {
        try await database.execute(
            "SELECT id FROM apps WHERE id_folded = $1",
            [.text(AppID.folded(name))]
        ).first?.text("id")
    }
}
