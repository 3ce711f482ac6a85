import PushCore
import PushStorage
import Storage

/// The acts that a chart marks with dashed lines, and their list for those who do not see lines.
struct ChartEvents {
    /// The most lines of a chart.
    static let most = 20
    /// The entries to read for them: some are validations of templates, which publish nothing.
    static let mostRead = 60

    /// The newest first.
    private let events: [AuditEvent]
    private let isCut: Bool
    private let buckets: FigureBuckets
    private let t: Words

    /// - Parameters:
    ///   - events: The acts, the newest first. Those outside of the chart are left out.
    ///   - buckets: The chart's.
    ///   - t: The words.
    init(_ events: [AuditEvent], _ buckets: FigureBuckets, _ t: Words) {
        let inside = events.filter { buckets.index(of: $0.at) != nil }
        self.events = Array(inside.prefix(Self.most))
        isCut = inside.count > Self.most
        (self.buckets, self.t) = (buckets, t)
    }

    var isEmpty: Bool { events.isEmpty }

    /// The dashed lines.
    var path: String {
        let length = buckets.end.milliseconds - buckets.start.milliseconds
        return events.map { event in
            let place = event.at.milliseconds - buckets.start.milliseconds
            return "M\(place * Int64(ChartGeometry.width) / length) 0V\(ChartGeometry.height)"
        }.joined()
    }

    /// Returns what happened in a bucket.
    func texts(in bucket: Int) -> [String] {
        events.reversed().filter { buckets.index(of: $0.at) == bucket }.map { $0.text(t) }
    }

    /// The acts as text.
    var list: HTML {
        guard !events.isEmpty else { return .empty }
        let items = events.map { event -> HTML in
            """
            <li>\(t.moment(event.at)): \(event.text(t)) \
            <span class="faint">\(Part.own(event.actor))</span></li>
            """
        }
        let rest: HTML =
            isCut
            ? """
            <p class="hint">\(t(
                "Only the latest {count} are marked. The audit has all.",
                ["count": t.number(Self.most)]))</p>
            """ : .empty
        let title = t.count(events.count, one: "{count} event", other: "{count} events")
        return "<details><summary>\(title)</summary><ul>\(items)</ul>\(rest)</details>"
    }
}

extension AuditEvent {
    fileprivate func text(_ t: Words) -> String {
        switch kind {
        case .configPublished(let namespace, let version):
            t(
                "Template {namespace} {version} published",
                ["namespace": namespace, "version": String(version)]
            )
        case .configRolledBack(let namespace, let version):
            t(
                "Template {namespace} rolled back, as version {version}",
                ["namespace": namespace, "version": String(version)]
            )
        case .credentialSet(let name): t("Credential {name} stored", ["name": name.trimmed])
        case .credentialRemoved(let name): t("Credential {name} removed", ["name": name.trimmed])
        case .settingsChanged: t("Settings changed")
        case .keyRotated: t("Key rotated")
        case .devicesRestored: t("Devices restored")
        }
    }
}
