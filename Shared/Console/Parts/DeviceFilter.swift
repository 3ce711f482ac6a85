import InstallationStorage
import JSON
import PushCore
import Storage

/// The filter of the list of devices: the values of its form are part of the address.
struct DeviceFilter: Sendable {
    enum Kind: String, CaseIterable, Sendable {
        case id, identity, channel, field, token

        /// Whether a search could reveal a text that a viewer may not see.
        fileprivate var findsSecrets: Bool { self == .field || self == .token }

        func title(_ t: Words) -> String {
            switch self {
            case .id: t("id")
            case .identity: t("identity")
            case .channel: t("channel")
            case .field: t("field = value")
            case .token: t("token")
            }
        }
    }

    let kind: Kind
    private let kinds: [Kind]
    private let mayGuess: Bool
    let text: String?
    let after: String?

    init(_ visit: Visit) {
        let named = visit.query("by").flatMap(Kind.init(rawValue:)) ?? .id
        let maySeeSecrets = visit.role >= .sender
        mayGuess = maySeeSecrets
        kinds = Kind.allCases.filter { maySeeSecrets || !$0.findsSecrets }
        kind = kinds.contains(named) ? named : .id
        text = visit.query("q")
        after = visit.query("after")
    }

    var isEmpty: Bool { text == nil && after == nil }

    /// Whether the text can be searched for.
    var isReadable: Bool { kind != .field || text == nil || field != nil }

    /// Returns the devices that follow an object id, in the order of their ids.
    func devices(
        of store: InstallationStore,
        app: String,
        after: String?,
        limit: Int
    ) async throws -> [Installation] {
        guard let text else { return try await store.query(app: app, stored(after), limit: limit) }
        switch kind {
        case .id:
            // By beginnings, a viewer could find out an installationId, which is a secret.
            guard mayGuess else { return try await store.find(app: app, objectIDs: [text]) }
            return try await store.find(app: app, named: text, beginnings: true, limit: limit)
        case .token:
            var filter = stored(after)
            filter.token = text
            return try await store.query(app: app, filter, limit: limit)
        case .identity: return try await devices(["identity": .string(text)])
        case .channel: return try await devices(["channels": .string(text)])
        case .field:
            guard let field else { return [] }
            return try await devices([field.name: field.value])
        }

        // The store reads all matches first if they are few. In the order of the ids it would read
        // most of the table for them.
        func devices(_ condition: JSONObject) async throws -> [Installation] {
            var condition = condition
            if let after { condition["objectId"] = ["$gt": .string(after)] }
            do {
                let parsed = try Where.parse(.object(condition))
                return try await store.query(app: app, where: parsed, limit: limit)
            } catch is WhereError {
                return []
            }
        }
    }

    private func stored(_ after: String?) -> InstallationStore.Filter {
        var filter = InstallationStore.Filter()
        filter.after = after
        return filter
    }

    /// The field and the value of a text such as `plan = 7`: JSON's value, else the text.
    private var field: (name: String, value: JSONValue)? {
        let parts = (text ?? "").split(separator: "=", maxSplits: 1).map { String($0).trimmed }
        guard parts.count == 2, !parts[0].isEmpty, !parts[1].isEmpty, !parts[0].hasPrefix("$"),
            parts[0] != "objectId"
        else { return nil }
        let parsed = try? JSONValue.parse(parts[1])
        let isScalar = parsed.map { $0.object == nil && $0.array == nil && $0 != .null } ?? false
        return (parts[0], isScalar ? parsed ?? .string(parts[1]) : .string(parts[1]))
    }

    /// The values of the form, to be saved; empty if there is nothing to save.
    var values: KeyValuePairs<String, String?> {
        text == nil || kind == .token ? [:] : ["by": kind.rawValue, "q": text]
    }

    /// Whether a filter may be stored under a name: a token is a device's secret.
    static func maySave(_ filter: JSONObject) -> Bool {
        filter["by"]?.string != Kind.token.rawValue
    }

    /// Whether a stored filter may be shown. An id may be a device's own `installationId`, its secret.
    static func mayShow(_ filter: JSONObject, to role: Role) -> Bool {
        let kind = filter["by"]?.string.flatMap(Kind.init(rawValue:)) ?? .id
        return role >= .sender || kind == .identity || kind == .channel
    }

    func address(_ visit: Visit, after: String?, file: String = "devices") -> Address {
        visit.address(
            file,
            query: ["by": text == nil ? nil : kind.rawValue, "q": text, "after": after]
        )
    }

    func form(_ visit: Visit) -> HTML {
        let t = visit.t
        let kinds = kinds.map { ($0.rawValue, $0.title(t)) }
        let search = Field("q", t("Search")).input(text ?? "", type: "search")
        let choice = Field("by", t("By")).select(kind.rawValue, kinds)
        return Part.filter(visit.address("devices"), search + choice, t("Search"))
    }
}
