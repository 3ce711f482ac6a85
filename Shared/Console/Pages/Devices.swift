import Explain
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage

/// The pages of devices: the list, one device, and its deletion.
extension ConsoleSurface {
    var deviceRoutes: [SurfaceRoute] {
        [
            page(.get, "/devices", for: .viewer) { .page(try await deviceList($0)) },
            page(.get, "/devices/:id", for: .viewer) { .page(try await devicePage($0)) },
            page(.get, "/devices/:id/delete", for: .admin) { .page(try await deletePage($0)) },
            page(.post, "/devices/:id/delete", for: .admin) { try await deleteDevice($0) },
        ]
    }

    private static let pageSize = 25

    // MARK: List

    /// `GET /console/{app}/devices?q=&by=&after=`.
    private func deviceList(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let filter = DeviceFilter(visit)
        let found = try await filter.devices(
            of: database.installations,
            app: visit.app,
            after: filter.after,
            limit: Self.pageSize + 1
        )
        let shown = found.prefix(Self.pageSize)
        let older =
            found.count > Self.pageSize
            ? shown.last.map { filter.address(visit, after: $0.objectID) } : nil
        let table = Table(
            caption: t("Devices"),
            columns: [
                .init(t("Device")), .init(t("Provider")), .init(t("State")),
                .init(t("Identity"), width: 1), .init(t("Channels"), width: 1),
                .init(t("Last change (UTC)"), width: 2),
            ],
            rows: shown.map { row(of: $0, visit) },
            empty: empty(filter, visit)
        )
        let newest = filter.after == nil ? nil : filter.address(visit, after: nil)
        let pager = Part.pager(older: older, newest: newest, t)
        var page = Page(
            t("Devices"),
            .devices,
            body: """
                \(filter.form(visit))\(try await savedFilters(of: .devices, visit))
                <div id="list">\(saveFilterForm(.devices, filter.values, visit))\(table.html)\(pager)\
                \(fileLink(filter, visit))</div>
                \(try await testDeviceList(visit))
                """
        )
        if visit.role >= .sender {
            page.actions = """
                <a class="btn" href="\(visit.address("devices", "restore"))">\(t("Restore"))…</a>
                """
        }
        return page
    }

    /// The link to the filtered list as a file; it changes with the list.
    private func fileLink(_ filter: DeviceFilter, _ visit: Visit) -> HTML {
        guard visit.role >= .sender else { return .empty }
        return """
            <p><a class="btn" href="\(filter.address(visit, after: nil, file: "devices.csv"))">\
            \(visit.t("Export as CSV"))</a></p>
            """
    }

    private func row(of device: Installation, _ visit: Visit) -> [HTML] {
        let t = visit.t
        let channels = device.channels.prefix(5).map(Part.own).joined(by: ", ")
        return [
            """
            <a href="\(visit.address("devices", device.objectID))" translate="no">\
            \(device.objectID)</a><span class="sub">\(Part.own(device.deviceType))</span>
            """,
            HTML(text: device.platform?.title ?? t("none")),
            Self.state(of: device, t),
            device.identity.map(Part.own) ?? .empty,
            device.channels.count > 5 ? channels + "…" : channels,
            t.time(device.updatedAt),
        ]
    }

    static func state(of device: Installation, _ t: Words) -> HTML {
        if device.isValid {
            return device.token == nil && device.platform != .connection
                ? Part.pill(t("No token"), .warn) : Part.pill(t("Reachable"), .ok)
        }
        guard let reason = device.invalidReason else { return Part.pill(t("Muted"), .warn) }
        return "\(Part.pill(t("Invalid"), .bad)) \(Part.code(reason))"
    }

    private func empty(_ filter: DeviceFilter, _ visit: Visit) -> HTML {
        let t = visit.t
        guard filter.isEmpty else {
            let sentence =
                filter.isReadable
                ? t("No device matches.")
                : t("This is no field with a value. Example: {example}", ["example": "plan = 7"])
            return """
                <p>\(sentence) \
                <a href="\(visit.address("devices"))">\(t("Remove the filter"))</a></p>
                """
        }
        return
            "<p>\(t("No device is registered. A device registers at the app's first start."))</p>"
    }

    // MARK: One device

    /// Finds the device of the address. A sender may also name it by its `installationId`.
    func device(of visit: Visit) async throws -> Installation {
        let id = visit.parameter("id")
        let found =
            visit.role >= .sender
            ? try await database.installations.find(
                app: visit.app,
                named: id,
                beginnings: false,
                limit: 1
            ) : try await database.installations.find(app: visit.app, objectIDs: [id])
        guard let device = found.first else {
            throw ConsoleError.missing(
                visit.t("No device has the id {id}.", ["id": String(id.prefix(64))])
            )
        }
        return device
    }

    private func devicePage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let device = try await device(of: visit)
        let recent = try await recentDeliveries(
            of: [device],
            at: visit.address("devices", device.objectID, query: ["wait": "1"]),
            isPatient: visit.query("wait") != nil,
            visit
        )
        var page = Page(
            device.objectID,
            .devices,
            body: """
                <div class="stack">
                \(Part.card(t("Recent pushes"), id: "recent", recent))
                \(Part.card(t("Device"), Self.facts(of: device, visit)))
                \(Part.card(t("Fields"), Self.fields(of: device, t)))
                \(try await testDeviceCard(device, visit))
                </div>
                """
        )
        page.crumbs = [(t("Devices"), visit.address("devices"))]
        page.marks = " \(Self.state(of: device, t))"
        var actions: HTML = """
            <a class="btn" href="\(visit.address("explain", query: ["installation": device.objectID]))">\
            \(t("Explain"))</a>
            """
        if visit.role >= .sender {
            actions += """
                <a class="btn" href="\(visit.address("send", query: ["device": device.objectID]))">\
                \(t("Send a test"))</a>
                """
            if !device.isValid, device.invalidReason != nil {
                actions += """
                    <form method="post" \
                    action="\(visit.address("devices", device.objectID, "restore"))">\
                    \(visit.formToken)<button class="btn">\(t("Restore"))</button></form>
                    """
            }
        }
        if visit.role >= .admin {
            actions += """
                <a class="btn danger" href="\(visit.address("devices", device.objectID, "delete"))">\
                \(t("Delete"))…</a>
                """
        }
        page.actions = actions
        return page
    }

    private static func facts(of device: Installation, _ visit: Visit) -> HTML {
        let t = visit.t
        var list = KeyValues()
        list.add(t("Installation"), Part.code(device.objectID))
        if visit.role >= .sender {
            list.add(t("installationId"), device.installationID.map(Part.code))
            list.add(t("Token"), device.token.map(Part.code))
        }
        list.add(t("Type"), Part.own(device.deviceType))
        list.add(t("Provider"), text: device.platform?.title ?? t("none"))
        if device.platform == .apns {
            list.add(t("Environment"), text: device.environment.rawValue)
            list.add(t("Topic"), device.apnsTopic.map(Part.own))
        }
        list.add(
            t("Identity"),
            device.identity.map { identity in
                """
                <a href="\(visit.address("identities", identity))">\(Part.own(identity))</a>
                """
            }
        )
        list.add(t("Channels"), device.channels.map(Part.own).joined(by: ", "))
        list.add(t("Time zone"), device.timeZone.map(Part.own))
        list.add(t("Language"), device.locale.map(Part.own))
        if device.hasBadge { list.add(t("Badge"), text: t.number(device.badge)) }
        list.add(t("Token changed"), device.tokenUpdatedAt.map(t.time))
        list.add(t("Created"), t.time(device.createdAt))
        list.add(t("Changed"), t.time(device.updatedAt))
        return list.html
    }

    /// The app's own fields; those that start with `_` are the service's.
    private static func fields(of device: Installation, _ t: Words) -> HTML {
        var list = KeyValues()
        for (name, value) in device.fields
        where !name.hasPrefix("_") && !SecretFields.names.contains(name) {
            let text = value.string ?? value.text
            list.items.append((name, Part.own(String(text.prefix(500)))))
        }
        return list.items.isEmpty ? "<p>\(t("The app stores no field of its own."))</p>" : list.html
    }

    // MARK: Deletion

    private func deletePage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let device = try await device(of: visit)
        var page = Page(
            t("Delete this device?"),
            .devices,
            body: """
                <form class="card stack" method="post" \
                action="\(visit.address("devices", device.objectID, "delete"))">\(visit.formToken)
                <p>\(Part.code(device.objectID))</p>
                <p>\(t("It gets no more pushes. If the app starts again, it registers as a new device."))\
                </p>
                <p class="hint">\(t("The records of its deliveries stay until their retention ends."))</p>
                <p class="actions"><button class="btn danger">\(t("Delete the device"))</button>
                <a class="btn plain" href="\(visit.address("devices", device.objectID))">\
                \(t("Back to the device"))</a></p></form>
                """
        )
        page.crumbs = [
            (t("Devices"), visit.address("devices")),
            (device.objectID, visit.address("devices", device.objectID)),
        ]
        return page
    }

    private func deleteDevice(_ visit: Visit) async throws -> PageAnswer {
        let device = try await device(of: visit)
        visit.note(device.objectID)
        _ = try await database.installations.delete(app: visit.app, objectIDs: [device.objectID])
        return .redirect(visit.address("devices"), flash: .deleted)
    }
}
