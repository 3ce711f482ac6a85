import Storage

/// The rights of a person in the console. Each role has the rights of those before it.
enum Role: String, Sendable, CaseIterable, Comparable {
    /// Reads all pages, but sees no token, no content of a payload and no dead letter's value.
    case viewer
    /// Also sends, cancels, replays, restores, publishes and sees content.
    case sender
    /// Also changes what controls access: credentials, keys, settings, imports and deletion.
    case admin

    static func < (left: Role, right: Role) -> Bool { left.rank < right.rank }

    private var rank: Int {
        switch self {
        case .viewer: 0
        case .sender: 1
        case .admin: 2
        }
    }

    func name(_ t: Words) -> String {
        switch self {
        case .viewer: t("viewer")
        case .sender: t("sender")
        case .admin: t("admin")
        }
    }

    /// Makes the role of an operator, as the login's mapping has it.
    init(_ role: OperatorRole) {
        switch role {
        case .viewer: self = .viewer
        case .sender: self = .sender
        case .admin: self = .admin
        }
    }
}
