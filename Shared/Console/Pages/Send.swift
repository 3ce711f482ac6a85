import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import Outbox
import PushCore
import PushStorage
import Storage

/// Writing a push: a draft, then a page with the number of devices, then one button that repeats the
/// number. Nothing is sent from the first page.
extension ConsoleSurface {
    var sendRoutes: [SurfaceRoute] {
        [
            page(.get, "/send", for: .sender) { try await sendPage($0) },
            page(.post, "/send/:draft", for: .sender) { try await changeDraft($0) },
            page(.get, "/send/:draft/review", for: .sender) { try await reviewPage($0) },
            page(.post, "/send/:draft/review", for: .sender) { try await send($0) },
        ]
    }

    /// The source of the console's events. The event is the draft, so that a draft is sent once.
    static let eventSource = "carillon/console"
    /// Above this number, it must be typed to confirm.
    static let unconfirmedDevices = 10_000
    static let countMilliseconds = 1000

    // MARK: Draft

    /// `GET /console/{app}/send?draft=`, or `?copy=<push>`: a stored push as a new draft.
    private func sendPage(_ visit: Visit) async throws -> PageAnswer {
        if let id = visit.query("draft") {
            let draft = try await draft(id, visit)
            return .page(try await writingPage(SendForm(draft.form), id: draft.id, visit))
        }
        let id = PushIdentity.uuidText(randomBytes(16))
        if let copied = visit.query("copy") {
            guard let push = try await database.pushes.find(copied.lowercased()),
                push.app == visit.app
            else { throw ConsoleError.missing(visit.t("There is no such push.")) }
            let uncopied = SendForm.uncopied(push.request)
            guard uncopied.isEmpty else {
                throw ConsoleError.conflict(
                    visit.t(
                        "The push cannot be copied: this page has no fields for {fields}.",
                        ["fields": uncopied.joined(separator: ", ")]
                    )
                )
            }
            return .page(
                try await writingPage(SendForm(copying: push.request), id: id, visit)
            )
        }
        var form = SendForm()
        if let device = visit.query("device") {
            form["who"] = SendForm.Audience.named.rawValue
            form["installations"] = device
        }
        return .page(try await writingPage(form, id: id, visit))
    }

    private func draft(_ id: String, _ visit: Visit) async throws -> PushDraft {
        guard let draft = try await database.drafts.find(id, app: visit.app) else {
            throw ConsoleError.missing(
                visit.t("There is no such draft. Drafts are stored for seven days.")
            )
        }
        return draft
    }

    /// `POST /console/{app}/send/{draft}`: stores the draft, then does what the button says.
    private func changeDraft(_ visit: Visit) async throws -> PageAnswer {
        let id = visit.parameter("draft").lowercased()
        guard PushIdentity.isUUID(id) else { throw ConsoleError.badForm }
        var form = SendForm(visit.form)
        let act = visit.form.text("do")
        form.change(act)
        // A count comes while the person types. It must not put an older content over a newer one.
        if act == "count" {
            visit.caller.context?.isAudited = true
            return .page(try await writingPage(form, id: id, visit, isCounted: true))
        }
        guard
            try await database.drafts.save(
                id,
                app: visit.app,
                author: visit.session.actor,
                form: form.object
            )
        else { throw ConsoleError.badForm }
        // The audit has the push that comes of the draft, not each change of the draft.
        visit.caller.context?.isAudited = true
        switch act {
        case "test": return try await reviewTest(form, id: id, visit)
        case "review":
            if let problem = problem(in: form, visit) {
                var page = try await writingPage(form, id: id, visit, problem: problem)
                page.status = 422
                return .page(page)
            }
            return .redirect(visit.address("send", id, "review"))
        default: return .redirect(visit.address("send", query: ["draft": id]))
        }
    }

    /// Returns the first invalid field of a draft.
    func problem(in form: SendForm, _ visit: Visit) -> SendForm.Problem? {
        do {
            _ = try validated(form, id: PushIdentity.uuidText(randomBytes(16)), visit)
            return nil
        } catch let problem as SendForm.Problem {
            return problem
        } catch {
            return SendForm.Problem(field: "text", sentence: "\(error)")
        }
    }

    /// - Throws: `SendForm.Problem`.
    private func validated(
        _ form: SendForm,
        id: String,
        _ visit: Visit,
        isDryRun: Bool = false
    ) throws -> PushAcceptance.ValidatedPush {
        var request = try form.request(visit.t)
        if isDryRun { request["dry_run"] = true }
        do {
            return try acceptance.validate(
                request,
                .init(
                    app: visit.app,
                    source: Self.eventSource,
                    id: isDryRun ? "dry-run:\(id):\(form.digest.prefix(16))" : id
                ),
                includesPushID: visit.caller.includesPushIDs,
                now: acceptance.clock.now()
            )
        } catch let error as PushRequestError {
            throw SendForm.Problem(
                field: SendForm.field(ofRequest: error.field),
                sentence: error.description
            )
        } catch let error as PushTooLarge {
            throw SendForm.Problem(field: "text", sentence: error.description)
        }
    }

    // MARK: Writing

    func writingPage(
        _ form: SendForm,
        id: String,
        _ visit: Visit,
        problem: SendForm.Problem? = nil,
        isCounted: Bool = false
    ) async throws -> Page {
        let t = visit.t
        let fields = try await database.fields.list(app: visit.app)
            .filter { $0.className == "_Installation" }.map(\.name)
        let count: HTML =
            isCounted ? try await countPart(form, visit) : "<p>\(t("Not counted yet."))</p>"
        let parts = SendParts(form: form, problem: problem, fields: fields, t: t)
        let wrong = problem.map { problem -> HTML in
            """
            <div class="note bad" role="alert"><p>\(problem.sentence) \
            <a href="\(visit.address("send", query: ["draft": id]))" data-focus="#\(problem.field)">\
            \(t("Show the field"))</a></p></div>
            """
        }
        var page = Page(
            t("Send a push"),
            .send,
            body: """
                \(wrong)
                <form class="aside" method="post" action="\(visit.address("send", id))" \
                data-swap="#count" data-also="#preview" data-on="input" data-act="count" data-keep>\(visit.formToken)
                <div class="stack">\(parts.audience)\(parts.message)\(parts.schedule)</div>
                <div class="stack sticky">
                \(Part.card(t("Devices"), id: "count", count))
                \(Part.card(t("Preview"), id: "preview", SendParts.preview(form, t)))
                <p class="actions"><button class="btn primary" name="do" value="review">\
                \(t("Review"))</button>\
                <button class="btn" name="do" value="count">\(t("Count"))</button>\
                <button class="btn plain" name="do" value="save">\(t("Save the draft"))</button></p>
                \(try await testCard(problem, visit))
                </div></form>
                """
        )
        page.lead = HTML(
            text: t("Nothing is sent from this page. The next one shows the number of devices.")
        )
        return page
    }

    /// The number of devices, exact if it is counted within a second.
    private func countPart(_ form: SendForm, _ visit: Visit) async throws -> HTML {
        let t = visit.t
        let request: PushRequest
        do {
            var object = try form.audienceRequest(t)
            object["data"] = ["alert": "."]
            request = try PushRequest.parse(object, now: t.now)
        } catch let problem as SendForm.Problem {
            return "<p>\(problem.sentence)</p>"
        } catch let error as PushRequestError {
            return "<p>\(error.description)</p>"
        }
        guard case .installations(let selectors) = request.audience else { return .empty }
        do {
            let count = try await database.installations.count(
                app: visit.app,
                selectors,
                withinMilliseconds: Self.countMilliseconds
            )
            return Self.counted(count, t)
        } catch let error as WhereError {
            return "<p>\(error.description)</p>"
        }
    }

    static func counted(_ count: AudienceCount, _ t: Words) -> HTML {
        guard let reachable = count.reachable, let total = count.reachableCount else {
            let about = t.count(
                count.selected,
                one: "About {count} device. Counting takes more than a second.",
                other: "About {count} devices. Counting takes more than a second."
            )
            return "<p class=\"figure\">\(about)</p>"
        }
        var list = KeyValues()
        for platform in Platform.allCases {
            if let devices = reachable[platform] {
                list.add(platform.title, text: t.number(devices))
            }
        }
        let rest = count.selected - total
        let unreachable = t.count(
            rest,
            one: "{count} more device matches, but has no valid token.",
            other: "{count} more devices match, but have no valid token."
        )
        return """
            <p class="figure">\(t.count(total, one: "{count} device", other: "{count} devices"))</p>
            \(list.html)\(rest > 0 ? "<p class=\"hint\">\(unreachable)</p>" : .empty)
            """
    }

    // MARK: Review

    /// `GET /console/{app}/send/{draft}/review`.
    private func reviewPage(_ visit: Visit) async throws -> PageAnswer {
        let draft = try await draft(visit.parameter("draft"), visit)
        return .page(try await reviewPage(draft, visit, problem: nil))
    }

    private func reviewPage(
        _ draft: PushDraft,
        _ visit: Visit,
        problem: String?
    ) async throws -> Page {
        let t = visit.t
        let form = SendForm(draft.form)
        let validated: PushAcceptance.ValidatedPush
        do { validated = try self.validated(form, id: draft.id, visit) } catch let wrong
            as SendForm.Problem
        {
            var page = try await writingPage(form, id: draft.id, visit, problem: wrong)
            page.status = 422
            return page
        }
        guard case .installations(let selectors) = validated.audience else {
            throw ConsoleError.badForm
        }
        let count = try await database.installations.count(
            app: visit.app,
            selectors,
            withinMilliseconds: Self.countMilliseconds
        )
        let devices = count.reachableCount ?? count.selected
        let isScheduled = validated.push.releaseAt != nil || form.timing != .now
        let review = ReviewParts(
            form: form,
            push: validated.push,
            count: count,
            sample: try await sample(of: validated, selectors, visit),
            latest: try await latestPushes(of: visit.app),
            credentials: try await database.credentials.list(app: visit.app),
            t: t
        )
        let number = t.count(devices, one: "{count} device", other: "{count} devices")
        var page = Page(
            isScheduled
                ? t("Schedule for {devices}?", ["devices": number])
                : t("Send to {devices}?", ["devices": number]),
            .send,
            body: """
                <div class="aside"><div class="stack">\(review.warnings)
                \(Part.card(t("Summary"), review.summary))
                \(Part.card(t("By provider"), Self.counted(count, t)))
                \(Part.card(t("Request"), review.request))</div>
                <form class="card stack sticky" method="post" \
                action="\(visit.address("send", draft.id, "review"))">\(visit.formToken)
                <input type="hidden" name="draft" value="\(form.digest)">
                <h2>\(t("Confirm"))</h2>
                \(confirmation(devices, problem, backTo: form[SendForm.origin], visit))
                </form></div>
                """
        )
        let written = form[SendForm.origin].isEmpty ? draft.id : form[SendForm.origin]
        page.crumbs = [(t("Send a push"), visit.address("send", query: ["draft": written]))]
        page.lead = HTML(
            text: t(
                "Nothing is sent yet. The audience is fixed when you send, so the number may differ."
            )
        )
        if problem != nil { page.status = 422 }
        return page
    }

    private static let comparedPushes = 50

    /// The pushes with which a draft is compared; none if they cannot be read in time.
    private func latestPushes(of app: String) async throws -> [StoredPush] {
        do {
            return try await database.pushes.list(app: app, .init(), limit: Self.comparedPushes)
        } catch let error as StorageError where error.isStatementTimeout {
            return []
        }
    }

    /// Whether the number must be typed: the reviewed number, or that of now, is large.
    private func needsConfirmation(
        _ reviewed: Int,
        _ draft: PushDraft,
        _ visit: Visit
    ) async throws -> Bool {
        if reviewed > Self.unconfirmedDevices { return true }
        guard
            case .installations(let selectors)? = try? validated(
                SendForm(draft.form),
                id: draft.id,
                visit
            ).audience
        else { return false }
        let now = try await database.installations.count(
            app: visit.app,
            selectors,
            withinMilliseconds: Self.countMilliseconds
        )
        return (now.reachableCount ?? now.selected) > Self.unconfirmedDevices
    }

    /// Draws the button. A test leads back to `origin`, the draft that it tests.
    private func confirmation(
        _ devices: Int,
        _ problem: String?,
        backTo origin: String,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        let written = origin.isEmpty ? visit.parameter("draft") : origin
        let number = t.count(devices, one: "{count} device", other: "{count} devices")
        let wrong = problem.map { problem -> HTML in
            "<p class=\"error\" role=\"alert\">\(problem)</p>"
        }
        let typed: HTML =
            devices > Self.unconfirmedDevices
            ? Field(
                "confirm",
                t("Number of devices"),
                hint: HTML(text: t("Type {number} to confirm.", ["number": String(devices)]))
            ).input("") : .empty
        return """
            <input type="hidden" name="devices" value="\(devices)">\(wrong)\(typed)
            <button class="btn primary" name="do" value="send">\
            \(t("Send to {devices}", ["devices": number]))</button>
            <button class="btn" name="do" value="dry-run">\(t("Dry run"))</button>
            <a class="btn plain" href="\(visit.address(
                "send", query: ["draft": written]))">\(t("Back to the draft"))</a>
            <p class="hint">\(t("If you press the button twice, the push is sent once."))</p>
            """
    }

    /// `POST /console/{app}/send/{draft}/review`: accepts the push. Its event is the draft, so a
    /// second press finds the first push.
    private func send(_ visit: Visit) async throws -> PageAnswer {
        let draft = try await draft(visit.parameter("draft"), visit)
        // What is sent is what was reviewed, also if somebody has changed the draft since.
        guard visit.form.text("draft") == SendForm(draft.form).digest else {
            return .page(
                try await reviewPage(
                    draft,
                    visit,
                    problem: visit.t("The draft was changed after this review. Review it again.")
                )
            )
        }
        let isDryRun = visit.form.text("do") == "dry-run"
        let devices = Int(visit.form.text("devices")) ?? Int.max
        if !isDryRun, try await needsConfirmation(devices, draft, visit) {
            let typed = visit.form.text("confirm").filter(\.isNumber)
            guard typed == String(devices) else {
                return .page(
                    try await reviewPage(
                        draft,
                        visit,
                        problem: visit.t("The number is not the same.")
                    )
                )
            }
        }
        let validated: PushAcceptance.ValidatedPush
        do {
            validated = try self.validated(
                SendForm(draft.form),
                id: draft.id,
                visit,
                isDryRun: isDryRun
            )
        } catch is SendForm.Problem {
            return .redirect(visit.address("send", draft.id, "review"))
        }
        try visit.caller.countPush()
        let known = try await database.pushes.find(validated.push.id) != nil
        let push: StoredPush
        do { push = try await acceptance.accept(validated) } catch is TooManyScheduled {
            throw ConsoleError.conflict(
                visit.t("The app has too many scheduled pushes. Cancel some first.")
            )
        }
        visit.note(push.id)
        let flash: Flash =
            isDryRun
            ? .dryRun
            : known ? .alreadySent : validated.push.releaseAt == nil ? .sending : .scheduled
        return .redirect(visit.address("pushes", push.id), flash: flash)
    }
}
