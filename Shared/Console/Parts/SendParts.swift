import InstallationStorage
import JSON
import PushCore
import PushStorage

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
            (SendForm.Timing.at.rawValue, t("At a fixed time, UTC")),
            (SendForm.Timing.local.rawValue, t("At each device's local time")),
        ]
        return """
            <section class="card"><h2>\(t("Schedule"))</h2>
            \(field("when", t("When")).select(form.timing.rawValue, timings))
            \(field("time", t("Time")).input(form["time"], type: "datetime-local"))
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
        return notes.joined()
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
            t.html("{time} UTC", ["time": HTML(text: form["time"])])
        case .local:
            t.html("{time}, each device's local time", ["time": HTML(text: form["time"])])
        }
    }

    var request: HTML {
        Part.block(JSONValue.object(push.object).indented, id: "request", t)
    }
}
