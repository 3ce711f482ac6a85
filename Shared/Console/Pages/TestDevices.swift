import Gateway
import HTTPServer
import InstallationStorage
import PushCore
import Storage

/// Devices that people of the app use for tests, by a name of their own, and the acts on one device.
extension ConsoleSurface {
    var testDeviceRoutes: [SurfaceRoute] {
        [
            page(.post, "/devices/:id/test", for: .sender) { try await saveTestDevice($0) },
            page(.post, "/devices/:id/test/remove", for: .sender) {
                try await removeTestDevice($0)
            },
            page(.post, "/devices/:id/restore", for: .sender) { try await restoreDevice($0) },
        ]
    }

    static let maximumNameBytes = 80

    /// Returns a name that a person typed.
    ///
    /// - Throws: `ConsoleError.conflict` if it is empty or too long.
    static func name(_ text: String, _ t: Words) throws -> String {
        guard !text.isEmpty, text.utf8.count <= maximumNameBytes, !text.utf8.contains(0) else {
            throw ConsoleError.conflict(
                t(
                    "A name has 1 to {most} bytes. Go back and type one.",
                    ["most": t.number(maximumNameBytes)]
                )
            )
        }
        return text
    }

    // MARK: Acts

    /// `POST /console/{app}/devices/{id}/test`: adds a test device, or renames it.
    private func saveTestDevice(_ visit: Visit) async throws -> PageAnswer {
        let t = visit.t
        let device = try await device(of: visit)
        visit.note(device.objectID)
        let saved = try await database.testDevices.save(
            try Self.name(visit.form.text("name"), t),
            installation: device.objectID,
            app: visit.app,
            author: visit.session.actor
        )
        switch saved {
        case .done: return .redirect(Self.address(of: device, visit), flash: .saved)
        case .nameIsTaken:
            throw ConsoleError.conflict(t("Another test device has this name. Choose another one."))
        case .tooMany:
            throw ConsoleError.conflict(
                t(
                    "An app has at most {most} test devices. Remove one first.",
                    ["most": t.number(TestDeviceStore.maximum)]
                )
            )
        case .noDevice: throw ConsoleError.missing(t("The device was deleted meanwhile."))
        }
    }

    private func removeTestDevice(_ visit: Visit) async throws -> PageAnswer {
        let device = try await device(of: visit)
        visit.note(device.objectID)
        guard
            try await database.testDevices.remove(installation: device.objectID, app: visit.app)
        else { throw ConsoleError.conflict(visit.t("It is no test device.")) }
        return .redirect(visit.address("devices"), flash: .deleted)
    }

    /// `POST /console/{app}/devices/{id}/restore`.
    private func restoreDevice(_ visit: Visit) async throws -> PageAnswer {
        let t = visit.t
        let device = try await device(of: visit)
        visit.note(device.objectID)
        guard
            try await database.installations.restore(app: visit.app, objectID: device.objectID)
        else {
            throw ConsoleError.conflict(
                device.isValid
                    ? t("The device is valid, so there is nothing to restore.")
                    : t("The app muted the device, and only the app can change that.")
            )
        }
        return .redirect(Self.address(of: device, visit), flash: .deviceRestored)
    }

    private static func address(of device: Installation, _ visit: Visit) -> Address {
        visit.address("devices", device.objectID)
    }

    // MARK: Parts

    /// The card of a device's page: its name among the test devices.
    func testDeviceCard(_ device: Installation, _ visit: Visit) async throws -> HTML {
        let t = visit.t
        let own = try await database.testDevices.list(app: visit.app)
            .first { $0.installation == device.objectID }
        guard visit.role >= .sender else {
            return own.map { Part.card(t("Test device"), Part.own($0.name)) } ?? .empty
        }
        let removal = own.map { _ -> HTML in
            """
            <form method="post" action="\(visit.address("devices", device.objectID, "test", "remove"))">\
            \(visit.formToken)<button class="btn">\(t("Remove from the test devices"))</button></form>
            """
        }
        return Part.card(
            t("Test device"),
            id: "test",
            """
            <form method="post" action="\(visit.address("devices", device.objectID, "test"))">\
            \(visit.formToken)\(Field("name", t("Name"), hint: HTML(
                text: t("Pushes can be tested on it by this name, before they are sent.")))
                .input(own?.name ?? "", isRequired: true))
            <p class="actions"><button class="btn">\
            \(own == nil ? t("Add to the test devices") : t("Rename"))</button></p></form>\(removal)
            """
        )
    }

    /// The list of an app's test devices; empty if there is none.
    func testDeviceList(_ visit: Visit) async throws -> HTML {
        let t = visit.t
        let devices = try await database.testDevices.list(app: visit.app)
        guard !devices.isEmpty else { return .empty }
        let table = Table(
            caption: t("Test devices"),
            columns: [
                .init(t("Name")), .init(t("Device")), .init(t("Added by"), width: 1),
                .init(t("Remove"), .actions),
            ],
            rows: devices.map { device in
                let address = visit.address("devices", device.installation, "test", "remove")
                let removal: HTML =
                    visit.role >= .sender
                    ? """
                    <form class="inline" method="post" action="\(address)">\(visit.formToken)\
                    <button class="btn small">\(t("Remove"))\
                    <span class="hidden"> \(device.name)</span></button></form>
                    """ : .empty
                return [
                    Part.own(device.name),
                    """
                    <a href="\(visit.address("devices", device.installation))" translate="no">\
                    \(device.installation)</a>
                    """,
                    Part.own(device.author), removal,
                ]
            }
        )
        return Part.card(t("Test devices"), table.html)
    }
}
