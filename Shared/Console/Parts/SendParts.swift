import InstallationStorage
import JSON
import PushCore
import PushStorage
import RemoteConfig
import Storage

/// The parts of the page on which a push is written.
struct SendParts {
    let form: SendForm
    let problem: SendForm.Problem?
    /// The names of the app's own fields.
    let fields: [String]
    let t: Words

    private func field(_ name: String, _ label: String, hint: HTML = .empty) -> Field {
        Field(
            name,
            label,
            hint: hint,
            error: problem?.field == name ? problem?.sentence : nil
        )
    }

    // MARK: Audience

    var audience: HTML {
        let names: [(SendForm.Audience, String)] = [
            (.matching, t("Devices that match all conditions")),
            (.named, t("Named devices or users")),
            (.condition, t("A condition as where")), (.everyone, t("Everyone")),
        ]
        let choices = names.map { value, name -> HTML in
            """
            <div class="choice"><input type="radio" name="who" id="who-\(value.rawValue)" \
            value="\(value.rawValue)"\("checked", if: form.audience == value)>\
            <label for="who-\(value.rawValue)">\(name)</label></div>
            """
        }
        let wrong = problem.flatMap { problem -> HTML? in
            problem.field == "who" ? "<p class=\"error\">\(problem.sentence)</p>" : nil
        }
        return """
            <section class="card"><h2>\(t("Audience"))</h2>
            <fieldset id="who"><legend class="hidden">\(t("Audience"))</legend>\(choices)\(wrong)
            </fieldset>
            <div class="when some">
            \(field("channels", t("Channels"), hint: HTML(
                text: t("Any of these, one a line."))).area(form["channels"], rows: 2))
            \(field("tags", t("Tags"), hint: HTML(
                text: t("An expression, such as {example}", ["example": "(vip && !muted)"])))
                .input(form["tags"]))
            \(conditions)
            </div>
            <div class="when named">
            \(field("installations", t("Devices"), hint: HTML(text: t("Installation ids, one a line.")))
                .area(form["installations"]))
            \(field("identities", t("Identities"), hint: HTML(text: t("One a line.")))
                .area(form["identities"]))
            </div>
            <div class="when condition">
            \(field("where", "where", hint: HTML(text: t("A JSON object, as in the API.")))
                .area(form["where"], rows: 6))
            </div>
            \(field("environment", t("APNs environment")).select(
                form["environment"],
                [("production", t("Production")), ("sandbox", t("Sandbox"))]))
            </section>
            """
    }

    private var conditions: HTML {
        let rows = form.rows.enumerated().map { index, row -> HTML in
            let number = String(index + 1)
            let wrong = problem.flatMap { problem -> HTML? in
                problem.field == "v\(index)" ? "<p class=\"error\">\(problem.sentence)</p>" : nil
            }
            return """
                <div class="clause" role="group" \
                aria-label="\(t("Condition {number}", ["number": number]))">
                <input name="f\(index)" value="\(row.field)" list="fields" autocomplete="off" \
                aria-label="\(t("Field"))" placeholder="\(t("Field"))">
                \(comparisons(row.comparison, index))
                <input name="v\(index)" id="v\(index)" value="\(row.value)" autocomplete="off" \
                aria-label="\(t("Value"))" placeholder="\(t("Value"))">
                <button class="btn small" name="do" value="remove-\(index)">\(t("Remove"))</button>
                \(wrong)</div>
                """
        }
        let names = fields.map { name -> HTML in "<option value=\"\(name)\"></option>" }
        let add: HTML =
            rows.count < SendForm.maximumRows
            ? """
            <button class="btn small" name="do" value="add">\(t("Add a condition"))</button>
            """ : .empty
        return "<datalist id=\"fields\">\(names)</datalist>\(rows)<p>\(add)</p>"
    }

    private func comparisons(_ chosen: SendForm.Comparison, _ index: Int) -> HTML {
        let options = SendForm.Comparison.allCases.map { comparison -> HTML in
            """
            <option value="\(comparison.rawValue)"\("selected", if: comparison == chosen)>\
            \(comparison.title(t))</option>
            """
        }
        return """
            <select name="o\(index)" aria-label="\(t("Comparison"))">\(options)</select>
            """
    }

    // MARK: Message

    var message: HTML {
        let variants = form.variants.enumerated().map { index, variant -> HTML in
            """
            <div class="variant" role="group" aria-label="\(t("Language"))">
            \(field("l\(index)", t("Language"), hint: HTML(
                text: t("Such as {example}", ["example": "pt-BR"]))).input(variant.locale))
            \(field("x\(index)", t("Title")).input(variant.title))
            \(field("y\(index)", t("Text")).area(variant.text))
            <button class="btn small" name="do" value="remove-language-\(index)">\
            \(t("Remove"))</button></div>
            """
        }
        let add: HTML =
            variants.count < SendForm.maximumVariants
            ? """
            <button class="btn small" name="do" value="add-language">\(t("Add a language"))</button>
            """ : .empty
        return """
            <section class="card"><h2>\(t("Message"))</h2>
            \(field("silent", t("Silent push: no text, only data")).checkbox(form["silent"] == "on"))
            \(field("title", t("Title")).input(form["title"]))
            \(field("text", t("Text")).area(form["text"]))
            \(variants)<p>\(add)</p>
            <details><summary>\(t("More fields"))</summary>
            \(field("sound", t("Sound")).input(form["sound"]))
            \(field("badge", t("Badge"), hint: HTML(
                text: t("A number, or {word}", ["word": "Increment"]))).input(form["badge"]))
            \(field("collapse", t("Collapse id"), hint: HTML(
                text: t("A later push with the same id replaces this one."))).input(form["collapse"]))
            \(field("data", t("Own data"), hint: HTML(text: t("A JSON object.")))
                .area(form["data"]))
            </details></section>
            """
    }

    // MARK: Schedule

    var schedule: HTML {
        let timings = [
            (SendForm.Timing.now.rawValue, t("Now")),
            (SendForm.Timing.at.rawValue, t("At a fixed time")),
            (SendForm.Timing.local.rawValue, t("At each device's local time")),
        ]
        return """
            <section class="card"><h2>\(t("Schedule"))</h2>
            \(field("when", t("When")).select(form.timing.rawValue, timings))
            \(field("time", t("Time")).input(form["time"], type: "datetime-local"))
            \(field("zone", t("Time zone of a fixed time"), hint: HTML(
                text: t("Such as {example}. Empty: UTC.", ["example": "Europe/Berlin"])))
                .input(form["zone"], suggestions: ZonedTime.zones))
            \(field("expiry", t("Expires after hours"), hint: HTML(
                text: t("Empty: it is stored by the provider as long as possible.")))
                .input(form["expiry"]))
            \(field("pace", t("Pace"), hint: HTML(text: t("Devices per second. Empty: no limit.")))
                .input(form["pace"]))
            </section>
            """
    }

    /// The notification as a phone shows it, with the fallbacks of placeholders.
    static func preview(_ form: SendForm, _ t: Words) -> HTML {
        if form["silent"] == "on" {
            return "<p class=\"hint\">\(t("A silent push shows nothing."))</p>"
        }
        let title: HTML? =
            form["title"].isEmpty ? nil : "<strong>\(Part.own(form["title"]))</strong>"
        let kinds: [(StaticString, String)] = [
            ("ios", "iPhone"), ("android", "Android"), ("windows", "Windows"),
        ]
        return kinds.map { kind, name -> HTML in
            """
            <figure class="preview \(HTML(stringLiteral: kind))"><figcaption>\(name)</figcaption>\
            \(title)<p title="\(form["text"])">\(Part.own(form["text"]))</p></figure>
            """
        }.joined()
    }
}

extension SendForm.Comparison {
    func title(_ t: Words) -> String {
        switch self {
        case .equals: t("is")
        case .isAmong: t("is one of")
        case .differs: t("is not")
        case .atLeast: t("is at least")
        case .lessThan: t("is less than")
        case .beginsWith: t("begins with")
        case .exists: t("exists")
        }
    }
}

/// The parts of the page that asks before a push is sent.
struct ReviewParts {
    let form: SendForm
    let push: NewPush
    let count: AudienceCount
    /// Some devices of the audience; `nil` if they were not looked at.
    let sample: AudienceSample?
    /// The latest pushes of the app.
    let latest: [StoredPush]
    let credentials: [StoredCredential]
    let t: Words

    var warnings: HTML {
        var notes: [HTML] = []
        if form.audience == .everyone {
            notes.append(Part.note(HTML(text: t("This goes to every device of the app.")), .warn))
        }
        if count.reachableCount == 0 {
            notes.append(
                Part.note(HTML(text: t("No device matches now: nobody would get it.")), .warn)
            )
        }
        if form["text"].trimmed.hasPrefix("{") {
            notes.append(
                Part.note(HTML(text: t("The text begins with “{” and looks like JSON.")), .warn)
            )
        }
        let texts = sample.map { SampleWarnings(sample: $0, request: push.request, t: t).sentences }
        let sentences = (texts ?? []) + recently + expiring + [changedClocks].compactMap { $0 }
        return (notes + sentences.map { Part.note(HTML(text: $0), .warn) }).joined()
    }

    /// Says whether the text, or pushes to many devices, were sent within the hour.
    private var recently: [String] {
        let since = t.now.adding(milliseconds: -3_600_000)
        let recent = latest.filter { push in
            push.createdAt >= since && push.status != .cancelled
                && push.request["dry_run"]?.bool != true
        }
        let own = PushText(push.object)
        var sentences: [String] = []
        let same = recent.first { push in
            let text = PushText(push.request)
            return text.headline != nil && text.title == own.title && text.body == own.body
        }
        if let same {
            sentences.append(
                t("The same text was sent at {time}.", ["time": t.moment(same.createdAt)])
            )
        }
        let devices = recent.reduce(0) { $0 + $1.ledger.targeted }
        if devices > 0 {
            sentences.append(
                t.count(
                    devices,
                    one: "Pushes of the last hour made {count} delivery, perhaps to these.",
                    other: "Pushes of the last hour made {count} deliveries, perhaps to these."
                )
            )
        }
        return sentences
    }

    /// Says which credentials expire before the push does.
    private var expiring: [String] {
        let last = max(push.expiresAt ?? t.now, push.releaseAt ?? t.now)
        return credentials.compactMap { credential in
            guard let end = credential.end, end <= last,
                count.reachable.map({ ($0[credential.platform] ?? 0) > 0 }) ?? true
            else { return nil }
            return t(
                "The credential {name} of {provider} expires at {time}, before this push does.",
                [
                    "name": credential.name, "provider": credential.platform.title,
                    "time": t.moment(end),
                ]
            )
        }
    }

    /// Says what becomes of a time that the clocks show twice or never.
    private var changedClocks: String? {
        guard let zoned = form.zonedTime else { return nil }
        let time = t.moment(zoned.instant)
        switch zoned.occurrence {
        case .once: return nil
        case .twice:
            return t(
                "The clocks are set back then, and show this time twice. The push begins at the first: {time}.",
                ["time": time]
            )
        case .never:
            return t(
                "The clocks are set forward then, and skip this time. The push begins at {time}.",
                ["time": time]
            )
        }
    }

    var summary: HTML {
        var list = KeyValues()
        list.add(t("Audience"), audience)
        let text = PushText(push.object)
        list.add(t("Title"), text.title.map(Part.own))
        list.add(t("Text"), text.body.map(Part.own) ?? HTML(text: t("Silent push")))
        let locales = form.variants.map(\.locale).filter { !$0.isEmpty }
        list.add(t("Languages"), text: locales.joined(separator: ", "))
        list.add(t("Schedule"), schedule)
        list.add(t("Expires"), push.expiresAt.map { HTML(text: t.moment($0)) })
        list.add(t("Pace"), text: form["pace"])
        list.add(t("Collapse id"), text: form["collapse"])
        return list.html
    }

    private var audience: HTML {
        switch form.audience {
        case .everyone: HTML(text: t("Everyone"))
        case .matching, .named, .condition, nil:
            Part.code(
                JSONValue.object(
                    JSONObject(
                        push.object.filter { !["data", "push_time", "pace"].contains($0.key) }
                            .map { ($0.key, $0.value) }
                    )
                ).text
            )
        }
    }

    private var schedule: HTML {
        switch form.timing {
        case .now: HTML(text: t("Now"))
        case .at:
            if let zoned = form.zonedTime {
                t.html(
                    "{time} in {zone}: {instant}",
                    [
                        "time": HTML(text: form["time"]), "zone": Part.own(form["zone"].trimmed),
                        "instant": HTML(text: t.moment(zoned.instant)),
                    ]
                )
            } else {
                t.html("{time} UTC", ["time": HTML(text: form["time"])])
            }
        case .local:
            t.html("{time}, each device's local time", ["time": HTML(text: form["time"])])
        }
    }

    var request: HTML {
        Part.block(JSONValue.object(push.object).indented, id: "request", t)
    }
}
