/// One page: its frame is drawn by `Frame`.
struct Page: Sendable {
    var title: String
    /// The entry of the menu that is marked.
    var section: Section
    /// From the second level on; the app comes first by itself.
    var crumbs: [(text: String, address: Address)] = []
    /// The sentence under the title.
    var lead: HTML = .empty
    /// Marks beside the title.
    var marks: HTML = .empty
    /// Buttons and links at the top right.
    var actions: HTML = .empty
    var body: HTML
    var status = 200

    init(_ title: String, _ section: Section, body: HTML) {
        self.title = title
        self.section = section
        self.body = body
    }
}

/// An entry of the menu.
enum Section: CaseIterable, Sendable {
    case overview, send, pushes, devices
    case config, sync, secure, ingest, connections
    case deadLetters, health, credentials, audit, imports, settings

    func title(_ t: Words) -> String {
        switch self {
        case .overview: t("Overview")
        case .send: t("Send a push")
        case .pushes: t("Pushes")
        case .devices: t("Devices")
        case .config: t("Remote config")
        case .sync: t("Push sync")
        case .secure: t("Secure payloads")
        case .ingest: t("Ingest")
        case .connections: t("Connections")
        case .health: t("Health")
        case .deadLetters: t("Dead letters")
        case .credentials: t("Credentials")
        case .audit: t("Audit")
        case .imports: t("Import")
        case .settings: t("Settings")
        }
    }

    /// The last segment of its address; nil for the overview.
    var segment: String? {
        switch self {
        case .overview: nil
        case .send: "send"
        case .pushes: "pushes"
        case .devices: "devices"
        case .config: "config"
        case .sync: "sync"
        case .secure: "secure"
        case .ingest: "ingest"
        case .connections: "connections"
        case .health: "health"
        case .deadLetters: "dead-letters"
        case .credentials: "credentials"
        case .audit: "audit"
        case .imports: "import"
        case .settings: "settings"
        }
    }

    /// The role that sees it in the menu.
    var needs: Role {
        switch self {
        case .send: .sender
        case .imports: .admin
        case .overview, .pushes, .devices, .config, .sync, .secure, .ingest, .connections,
            .deadLetters, .health, .credentials, .audit, .settings:
            .viewer
        }
    }

    static let groups: [(title: StaticString?, sections: [Section])] = [
        (nil, [.overview, .send, .pushes, .devices]),
        ("Services", [.config, .sync, .secure, .ingest, .connections]),
        ("Operations", [.deadLetters, .health, .credentials, .audit, .imports, .settings]),
    ]
}

/// The answer of a page's handler.
enum PageAnswer: Sendable {
    case page(Page)
    /// The next page after an act, with a message on it.
    case redirect(Address, flash: Flash? = nil)
    /// A file to save; it is written as it is read.
    case file(name: String, HTTPFile)
}

/// A file that a page offers.
struct HTTPFile: Sendable {
    let contentType: String
    let write: @Sendable (_ write: (String) async throws -> Void) async throws -> Void

    init(
        contentType: String,
        write: @escaping @Sendable (_ write: (String) async throws -> Void) async throws -> Void
    ) {
        self.contentType = contentType
        self.write = write
    }
}

/// A message on the page after an act. A cookie has its name, never its text.
enum Flash: String, Sendable, CaseIterable {
    case sending, scheduled, dryRun, cancelled, deleted, saved, alreadySent
    case published, rolledBack, contentDeleted
    case uploaded, dryRunning, importing, paused, stopped
    case replayed, alreadyReplayed, restored
    case deviceRestored
    case credentialStored, credentialRemoved

    func text(_ t: Words) -> String {
        switch self {
        case .sending: t("The push is being sent. You can cancel it until it ends.")
        case .scheduled: t("The push is scheduled. You can cancel it until it ends.")
        case .dryRun: t("The dry run is counted. Nothing is sent.")
        case .cancelled: t("The push is cancelled.")
        case .deleted: t("It is deleted.")
        case .saved: t("It is saved.")
        case .published: t("The template is published.")
        case .rolledBack: t("The old template is published as a new version.")
        case .contentDeleted: t("The content is deleted.")
        case .uploaded: t("The file is stored. Nothing is imported yet.")
        case .dryRunning: t("The dry run begins. This page shows its result.")
        case .importing: t("The import begins. You can close this page.")
        case .paused: t("The import is paused.")
        case .stopped: t("The import is stopped.")
        case .replayed: t("It is on its topic again. The result comes within seconds.")
        case .restored: t("The devices are valid again. They get the next push.")
        case .alreadyReplayed: t("It is a push already. Nothing was replayed.")
        case .deviceRestored: t("The device is valid again. It gets the next push.")
        case .credentialStored: t("The credential is stored. Pushes use it from now on.")
        case .credentialRemoved: t("The credential is removed.")
        case .alreadySent: t("This draft was already sent. This is its push.")
        }
    }
}
