import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import Outbox
import PushCore
import PushStorage
import Storage

/// The test of a draft on named devices: a draft of its own with the same message, which is reviewed and
/// sent as any other. The tested draft stays as it is.
extension ConsoleSurface {
    /// A field of the form for each test device; the rest of its name is the installation's object id.
    private static let field = "test."

    /// `do=test`: makes the draft for the chosen devices, and reviews it.
    func reviewTest(_ form: SendForm, id: String, _ visit: Visit) async throws -> PageAnswer {
        let known = try await database.testDevices.list(app: visit.app)
        let chosen = known.map(\.installation).filter { visit.form[Self.field + $0] != nil }
        let test = form.test(on: chosen, of: id)
        let problem =
            chosen.isEmpty
            ? SendForm.Problem(field: "test", sentence: visit.t("Choose a test device."))
            : self.problem(in: test, visit)
        if let problem {
            var page = try await writingPage(form, id: id, visit, problem: problem)
            page.status = 422
            return .page(page)
        }
        let testID = PushIdentity.uuidText(randomBytes(16))
        _ = try await database.drafts.save(
            testID,
            app: visit.app,
            author: visit.session.actor,
            form: test.object
        )
        return .redirect(visit.address("send", testID, "review"))
    }

    /// The choice of test devices beside a draft. An only one is chosen already.
    func testCard(_ problem: SendForm.Problem?, _ visit: Visit) async throws -> HTML {
        let t = visit.t
        let devices = try await database.testDevices.list(app: visit.app)
        guard !devices.isEmpty else {
            return Part.card(
                t("Test devices"),
                id: "test",
                """
                <p>\(t("Give a device a name on its page, to test pushes on it first."))
                <a href="\(visit.address("devices"))">\(t("Devices"))</a></p>
                """
            )
        }
        let choices = devices.map { device -> HTML in
            let name = Self.field + device.installation
            let isChosen = visit.form[name] != nil || devices.count == 1
            return """
                <div class="choice"><input type="checkbox" id="\(name)" name="\(name)" \
                value="on"\("checked", if: isChosen)><label for="\(name)">\
                \(Part.own(device.name))</label></div>
                """
        }
        let wrong = problem.flatMap { problem -> HTML? in
            problem.field == "test" ? "<p class=\"error\">\(problem.sentence)</p>" : nil
        }
        return Part.card(
            t("Test devices"),
            id: "test",
            """
            <fieldset><legend class="hidden">\(t("Test devices"))</legend>\(choices)\(wrong)</fieldset>
            <p class="actions"><button class="btn" name="do" value="test">\
            \(t("Review a test"))</button></p>
            <p class="hint">\(t("The test goes to these devices only, and the draft stays."))</p>
            """
        )
    }

    private static let sampleMilliseconds = 150

    /// Looks at some devices of a push's audience; `nil` if that takes too long.
    func sample(
        of push: PushAcceptance.ValidatedPush,
        _ selectors: PushRequest.Selectors,
        _ visit: Visit
    ) async throws -> AudienceSample? {
        guard let data = push.push.request.data, data["alert"] != nil else { return nil }
        do {
            return try await database.installations.sample(
                app: visit.app,
                selectors,
                fields: push.push.request.templateFields,
                withinMilliseconds: Self.sampleMilliseconds
            )
        } catch let error as StorageError where error.isStatementTimeout {
            return nil
        }
    }
}
