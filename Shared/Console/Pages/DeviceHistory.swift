import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import PushStorage
import SecureStorage
import Storage

/// The recent pushes of one device, and of all devices of one person.
extension ConsoleSurface {
    var deviceHistoryRoutes: [SurfaceRoute] {
        [
            page(.get, "/identities/:identity", for: .viewer) {
                .page(try await identityPage($0))
            }
        ]
    }

    /// The pushes that are searched, the latest of the app.
    private static let searchedPushes = 100
    private static let deviceMilliseconds = 150
    private static let identityMilliseconds = 500
    /// The time limit if somebody asks to wait.
    private static let patientMilliseconds = 5000
    /// The most devices of a person that are listed, and whose deliveries are searched.
    private static let maximumDevices = 10

    // MARK: Deliveries

    /// The recent deliveries of some devices, or a link that waits longer for them.
    func recentDeliveries(
        of devices: [Installation],
        at address: Address,
        isPatient: Bool,
        _ visit: Visit
    ) async throws -> HTML {
        let t = visit.t
        let usual = devices.count == 1 ? Self.deviceMilliseconds : Self.identityMilliseconds
        let found = try await database.deliveries.recent(
            of: devices.flatMap(Self.targets),
            app: visit.app,
            pushes: Self.searchedPushes,
            withinMilliseconds: isPatient ? Self.patientMilliseconds : usual
        )
        guard let found else {
            return """
                <p>\(t("Not loaded in time.")) <a href="\(address)">\(t("Load and wait"))</a></p>
                """
        }
        let pushes = try await database.pushes.find(Set(found.deliveries.map(\.pushID)))
        let table = Table(
            caption: t("Recent pushes"),
            columns: [
                .init(t("Push")), .init(t("Outcome")), .init(t("Time (UTC)")),
                .init(t("Device"), width: 1), .init(t("Explain"), .actions),
            ],
            rows: found.deliveries.map { delivery in
                row(of: delivery, pushes[delivery.pushID], devices, visit)
            },
            empty: "<p>\(t("None of them was sent to it."))</p>"
        )
        let searched =
            found.since.map { since in
                t.count(
                    found.pushes,
                    one: "Searched: the latest push of the app, of {time}.",
                    other: "Searched: the latest {count} pushes of the app, since {time}.",
                    ["time": t.moment(since)]
                )
            } ?? t("The app has no push yet.")
        return "\(table.html)<p class=\"hint\">\(searched)</p>"
    }

    /// The targets that a delivery to a device may have.
    private static func targets(of device: Installation) -> [String] {
        let hash = device.token.map { PushIdentity.tokenHash($0) { sha256($0) } }
        return [device.objectID] + (hash.map { [$0] } ?? [])
    }

    private func row(
        of delivery: RecentDelivery,
        _ push: StoredPush?,
        _ devices: [Installation],
        _ visit: Visit
    ) -> [HTML] {
        let t = visit.t
        // A token's hash stands for the device that has the token now.
        let device =
            devices.first { Self.targets(of: $0).contains { $0.isSame(as: delivery.target) } }?
            .objectID ?? ""
        let outcome = t.outcome(delivery.state)
        let reason =
            delivery.reason ?? (delivery.state == .failed ? delivery.status.map(String.init) : nil)
        return [
            """
            <a href="\(visit.address("pushes", delivery.pushID))">\
            \(push.map { Part.own($0.headline(t)) } ?? Part.code(delivery.pushID))</a>
            """,
            """
            <span class="shape \(outcome.shape)">\(outcome.title)</span> \(reason.map(Part.code))
            """,
            t.time(delivery.updatedAt),
            """
            <a href="\(visit.address("devices", device))" translate="no">\(device)</a>\
            <span class="sub">\(delivery.platform.title)</span>
            """,
            """
            <a class="btn small" href="\(visit.address(
                "explain", query: ["push": delivery.pushID, "installation": device]))">\
            \(t("Explain"))<span class="hidden"> \(delivery.pushID)</span></a>
            """,
        ]
    }

    // MARK: One person

    /// `GET /console/{app}/identities/{identity}`: what one person received, on all devices.
    private func identityPage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let identity = visit.parameter("identity")
        guard !identity.isEmpty, !identity.utf8.contains(0) else { throw ConsoleError.badForm }
        var filter = InstallationStore.Filter()
        filter.identity = identity
        let found = try await database.installations.query(
            app: visit.app,
            filter,
            limit: Self.maximumDevices + 1
        )
        let devices = Array(found.prefix(Self.maximumDevices))
        let secure = try await database.securePayloads.list(
            app: visit.app,
            identity: identity,
            limit: Self.countedPayloads
        )
        guard !devices.isEmpty || !secure.entries.isEmpty else {
            throw ConsoleError.missing(
                t("Nothing is stored of {identity}.", ["identity": String(identity.prefix(64))])
            )
        }
        let recent =
            devices.isEmpty
            ? "<p>\(t("No device is registered for it."))</p>"
            : try await recentDeliveries(
                of: devices,
                at: visit.address("identities", identity, query: ["wait": "1"]),
                isPatient: visit.query("wait") != nil,
                visit
            )
        var page = Page(
            DeadLetterParts.cut(identity, 64),
            .devices,
            body: """
                <div class="stack">
                \(Part.card(t("Recent pushes"), recent))
                \(Part.card(t("Devices"), deviceLinks(devices, isMore: found.count > devices.count, identity, visit)))
                \(Part.card(t("Secure payloads"), payloadCount(secure.entries.count, isMore: secure.next != nil, identity, visit)))
                </div>
                """
        )
        page.crumbs = [(t("Devices"), visit.address("devices"))]
        page.lead = HTML(text: t("A person, by the identity that the app gave its devices."))
        return page
    }

    private static let countedPayloads = 100

    private func deviceLinks(
        _ devices: [Installation],
        isMore: Bool,
        _ identity: String,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        let table = Table(
            caption: t("Devices"),
            columns: [
                .init(t("Device")), .init(t("Provider")), .init(t("State")),
                .init(t("Last change (UTC)"), width: 1),
            ],
            rows: devices.map { device in
                [
                    """
                    <a href="\(visit.address("devices", device.objectID))" translate="no">\
                    \(device.objectID)</a>
                    """,
                    HTML(text: device.platform?.title ?? t("none")),
                    Self.state(of: device, t), t.time(device.updatedAt),
                ]
            },
            empty: "<p>\(t("No device is registered for it."))</p>"
        )
        guard isMore else { return table.html }
        return """
            \(table.html)<p>\(t("Only the first {count} are shown, and searched for pushes.", [
                "count": t.number(devices.count)
            ])) <a href="\(visit.address(
                "devices", query: ["by": "identity", "q": identity]))">\(t("All devices"))</a></p>
            """
    }

    private func payloadCount(
        _ count: Int,
        isMore: Bool,
        _ identity: String,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        guard count > 0 else { return "<p>\(t("No secure payload is stored."))</p>" }
        let number = t.number(count) + (isMore ? "+" : "")
        return """
            <p><a href="\(visit.address("secure", query: ["by": "identity", "q": identity]))">\
            \(t("{count} stored", ["count": number]))</a></p>
            """
    }
}

extension Words {
    /// The shape and the name of an outcome.
    func outcome(_ state: DeliveryState) -> (shape: String, title: String) {
        switch state {
        case .delivered: ("delivered", self("Delivered"))
        case .failed: ("failed", self("Failed"))
        case .expired: ("expired", self("Expired"))
        case .suppressed: ("suppressed", self("Suppressed"))
        case .inDoubt: ("doubt", self("In doubt"))
        case .pending: ("pending", self("Pending"))
        }
    }
}
