import ConfigStorage
import JSON
import RemoteConfig

/// The parts of the pages of remote config.
struct ConfigParts {
    let visit: Visit
    let namespace: ConfigNamespace

    var t: Words { visit.t }

    /// The most changed properties that one page shows.
    private static let maximumRows = 300

    func address(_ segments: String..., query: [(String, String?)] = []) -> Address {
        Address([visit.app, "config", namespace.rawValue] + segments, query: query)
    }

    var crumbs: [(text: String, address: Address)] {
        [(t("Remote config"), visit.address("config")), (namespace.title(t), address())]
    }

    // MARK: Values

    /// A value of a parameter: its text, or the app's own.
    func value(_ value: JSONValue?) -> HTML {
        guard let value else { return .empty }
        if value["useInAppDefault"]?.bool == true {
            return "<em>\(t("in-app default"))</em>"
        }
        let text = Self.text(of: value)
        if text.isEmpty { return "<em>\(t("empty text"))</em>" }
        return Part.code(text.count > 200 ? String(text.prefix(199)) + "…" : text)
    }

    /// The text of a value, as pages show it.
    static func text(of value: JSONValue) -> String {
        value["value"]?.string ?? value.string ?? value.text
    }

    // MARK: Difference

    /// The difference as a table, one row for each changed property.
    func table(of difference: ConfigDifference, _ caption: String) -> HTML {
        var rows: [[HTML]] = []
        let groups: [(items: [ConfigDifference.Item], kind: String)] = [
            (difference.parameters, t("Parameter")), (difference.conditions, t("Condition")),
            (difference.groups, t("Group")),
        ]
        var left = 0
        for (items, kind) in groups {
            for item in items {
                for row in self.rows(of: item, kind) {
                    if rows.count < Self.maximumRows { rows.append(row) } else { left += 1 }
                }
            }
        }
        let table = Table(
            caption: caption,
            columns: [.init(t("Name")), .init(t("Before")), .init(t("After"))],
            rows: rows,
            empty: "<p>\(t("Nothing changes in parameters and conditions."))</p>"
        )
        let order: HTML =
            difference.isReordered
            ? Part.note(
                HTML(
                    text: t("The order of the conditions changes. The first that matches decides.")
                ),
                .warn
            ) : .empty
        let rest: HTML =
            left > 0
            ? """
            <p class="hint">\(t.count(
                left,
                one: "{count} more changed property is not shown.",
                other: "{count} more changed properties are not shown."
            ))</p>
            """ : .empty
        let isOnlyOrder = rows.isEmpty && difference.isReordered
        return "\(order)\(isOnlyOrder ? .empty : table.html)\(rest)"
    }

    private func rows(of item: ConfigDifference.Item, _ kind: String) -> [[HTML]] {
        let mark: HTML =
            switch item.kind {
            case .added: Part.pill(t("Added"), .ok)
            case .removed: Part.pill(t("Removed"), .bad)
            case .changed: Part.pill(t("Changed"), .warn)
            }
        let name: HTML = "\(Part.code(item.name)) \(mark)"
        guard !item.changes.isEmpty else {
            return [["\(name)<span class=\"sub\">\(kind)</span>", .empty, .empty]]
        }
        return item.changes.map { change in
            let pair = ExcerptPair(change.old.map(Self.text), change.new.map(Self.text))
            return [
                "\(name)<span class=\"sub\">\(kind): \(label(of: change.property))</span>",
                side(change.old, pair.old), side(change.new, pair.new),
            ]
        }
    }

    private func side(_ value: JSONValue?, _ excerpt: String?) -> HTML {
        guard let value, let excerpt else { return .empty }
        let isPlain = value["useInAppDefault"]?.bool != true && !excerpt.isEmpty
        return isPlain ? Part.code(excerpt) : self.value(value)
    }

    /// The name of a member of a condition, parameter or group.
    func label(of property: String) -> HTML {
        if property.hasPrefix(ConfigDifference.conditionalPrefix) {
            let condition = property.dropFirst(ConfigDifference.conditionalPrefix.count)
            return t.html("value if {condition}", ["condition": Part.code(String(condition))])
        }
        switch property {
        case "defaultValue": return HTML(text: t("default value"))
        case "valueType": return HTML(text: t("type"))
        case "description": return HTML(text: t("description"))
        case "group": return HTML(text: t("group"))
        case "expression", "condition": return HTML(text: t("expression"))
        case "tagColor": return HTML(text: t("colour"))
        default: return Part.code(property)
        }
    }

    /// `2 added, 1 removed, 3 changed`.
    func summary(of difference: ConfigDifference) -> String {
        t(
            "{added} added, {removed} removed, {changed} changed",
            [
                "added": t.number(difference.count(.added)),
                "removed": t.number(difference.count(.removed)),
                "changed": t.number(difference.count(.changed)),
            ]
        )
    }

    // MARK: Versions

    /// The versions that others published, as a table.
    func table(of versions: [StoredConfigVersion], _ caption: String, current: Int) -> Table {
        Table(
            caption: caption,
            columns: [
                .init(t("Version")), .init(t("Published (UTC)")), .init(t("By")),
                .init(t("State")), .init(t("Change"), width: 1),
            ],
            rows: versions.map { version in
                [
                    """
                    <a href="\(address("versions", String(version.version)))">\
                    \(String(version.version))</a>
                    """,
                    t.time(version.publishedAt), Part.own(version.user.name),
                    state(of: version, current: current),
                    "\(change(version)) \(Part.own(version.description))",
                ]
            },
            empty: "<p>\(t("No version is stored."))</p>"
        )
    }

    func state(of version: StoredConfigVersion, current: Int) -> HTML {
        switch version.state {
        case .good where version.version == current: Part.pill(t("Current"), .ok)
        case .good where version.version < current: Part.pill(t("Earlier"), .quiet)
        case .good: Part.pill(t("Not current"), .quiet)
        case .unchecked: Part.pill(t("Not checked yet"), .warn)
        case .refused: Part.pill(t("Rejected"), .bad)
        }
    }

    func change(_ version: StoredConfigVersion) -> HTML {
        switch ConfigUpdateType(rawValue: version.updateType) {
        case .incremental: HTML(text: t("Publish"))
        case .forced: HTML(text: t("Forced publish"))
        case .rollback:
            HTML(
                text: t(
                    "Rollback to {version}",
                    [
                        "version": version.rollbackSource.map(String.init) ?? "?"
                    ]
                )
            )
        case nil: Part.code(version.updateType)
        }
    }

    /// `Version 42, published 13:41:08 UTC by ola`.
    func sentence(about version: StoredConfigVersion) -> HTML {
        t.html(
            "Version {version}, published {time} by {name}.",
            [
                "version": HTML(text: String(version.version)),
                "time": HTML(text: t.moment(version.publishedAt)),
                "name": Part.own(version.user.name),
            ]
        )
    }
}

extension ConfigNamespace {
    /// The namespace's name on pages.
    func title(_ t: Words) -> String {
        switch self {
        case .firebase: t("Clients")
        case .server: t("Servers")
        }
    }
}
