import Importing
import PushCore

/// The page of one import: its progress while it runs, its mapping before, its report after.
extension ConsoleSurface {
    /// `GET /console/{app}/import/{job}`.
    func importPage(
        _ visit: Visit,
        mapping chosen: ImportMapping? = nil,
        problem: String? = nil
    ) async throws -> Page {
        let t = visit.t
        let job = try await importJob(of: visit)
        let upload = try await database.importUploads.find(job.id, app: visit.app)
        let reasons = try await database.imports.reasons(job.id)
        let isOpen =
            upload?.isWhole == true && upload?.task == nil
            && (job.state == .paused || job.state == .failed)
        var mapping = chosen
        if isOpen, mapping == nil, job.format == .csv, job.counts.records == 0 {
            mapping = try await self.mapping(of: job, visit)
        }
        let open = isOpen ? start(of: job, mapping, problem, visit) : .empty
        var page = Page(
            t("Import {id}", ["id": String(job.id)]),
            .imports,
            body: """
                <div class="stack">\(progress(of: job, upload, t))\(open)
                \(dryRun(upload?.dryRun, t))\(rejected(reasons, of: job, visit))</div>
                """
        )
        page.marks = " \(pill(of: job, upload, t))"
        page.crumbs = [(t("Import"), visit.address("import"))]
        page.lead = t.html(
            "{file} from {platform}, by {author}",
            [
                "file": Part.own(job.fileName), "platform": HTML(text: job.format.title),
                "author": Part.own(job.author),
            ]
        )
        if upload?.isWhole == true { page.actions = actions(for: job, upload, visit) }
        return page
    }

    private func pill(of job: ImportJob, _ upload: ImportUpload?, _ t: Words) -> HTML {
        guard let upload else { return job.state.pill(t) }
        if !upload.isWhole { return Part.pill(t("Uploading"), .quiet) }
        switch upload.task {
        case .dryRun?: return Part.pill(t("Dry run"), .quiet)
        case .run? where !upload.isClaimed: return Part.pill(t("Waiting"), .quiet)
        case .run?, nil:
            return job.state == .paused && job.counts.records == 0
                ? Part.pill(t("Not started"), .quiet) : job.state.pill(t)
        }
    }

    private func actions(for job: ImportJob, _ upload: ImportUpload?, _ visit: Visit) -> HTML {
        let t = visit.t
        let pause: HTML =
            upload?.task == nil
            ? .empty
            : """
            <form class="inline" method="post" action="\(visit.address("import", String(job.id)))">\
            \(visit.formToken)<button class="btn" name="do" value="pause">\(t("Pause"))</button></form>
            """
        return """
            \(pause)<a class="btn danger" href="\(visit.address("import", String(job.id), "stop"))">\
            \(t("Stop"))…</a>
            """
    }

    // MARK: Progress

    private func progress(of job: ImportJob, _ upload: ImportUpload?, _ t: Words) -> HTML {
        let isLive = upload.map { !$0.isWhole || $0.task != nil } ?? (job.state == .running)
        let live: HTML = isLive ? " data-live=\"2\"" : .empty
        let counts = job.counts
        var list = KeyValues()
        list.add(t("Records"), text: t.number(counts.records))
        list.add(t("Imported"), text: t.number(counts.imported))
        list.add(t("Updated"), text: t.number(counts.updated))
        list.add(t("Skipped"), text: t.number(counts.skipped))
        list.add(t("Rejected"), text: t.number(counts.rejected))
        list.add(t("Last line"), text: counts.records > 0 ? t.number(job.position.line) : nil)
        list.add(t("Per second"), text: upload?.rate(of: job).map(t.number))
        list.add(t("Ended"), job.finishedAt.map(t.time))
        let permille = Int((job.share ?? 0) * 1000)
        let share = t.share(permille, of: 1000)
        let bar: HTML =
            job.share == nil || counts.records == 0
            ? .empty
            : """
            <p><progress max="1000" value="\(permille)" aria-label="\(t("Read"))">\(share)</progress> \
            \(t("{share} read", ["share": share]))</p>
            """
        let failure = job.failure.map { Part.note(HTML(text: $0), .bad) }
        return """
            <section class="card" id="progress"\(live)><h2>\(t("Progress"))</h2>
            \(sentence(of: job, upload, t))\(bar)\(list.html)\(failure)</section>
            """
    }

    private func sentence(of job: ImportJob, _ upload: ImportUpload?, _ t: Words) -> HTML {
        let text: String
        switch (upload?.task, upload?.isWhole, job.state) {
        case (_, false?, _): text = t("The file is being uploaded.")
        case (.dryRun?, _, _): text = t("The dry run reads the whole file. Nothing is changed.")
        case (.run?, _, _): text = t("A restart of a service does not lose or repeat a line.")
        case (nil, true?, .paused) where job.counts.records == 0:
            text = t("The file is stored. It is deleted after seven days without a start.")
        case (nil, true?, .paused), (nil, true?, .failed):
            text = t("The import continues after the last line. The file is stored for seven days.")
        case (nil, _, .stopped): text = t("What was imported before the stop stays.")
        case (nil, _, .finished): text = t("The uploaded file is deleted.")
        case (nil, _, .paused), (nil, _, .failed), (nil, _, .running):
            text = t("The file is not stored here. In a terminal, the same command continues it.")
        }
        return "<p>\(text)</p>"
    }

    // MARK: Start

    private func start(
        of job: ImportJob,
        _ mapping: ImportMapping?,
        _ problem: String?,
        _ visit: Visit
    ) -> HTML {
        let t = visit.t
        let isNew = job.counts.records == 0
        let note = (problem ?? mapping?.unreadable).map { Part.note(HTML(text: $0), .bad) }
        let tryIt: HTML =
            isNew
            ? """
            <button class="btn" name="do" value="dry-run">\(t("Dry run"))</button></p>
            <p class="hint">\(t("A dry run counts what would be imported, and changes nothing."))</p>
            """ : "</p>"
        let begin = isNew ? t("Start the import") : t("Continue")
        let body: HTML = """
            <form method="post" action="\(visit.address("import", String(job.id)))">\(visit.formToken)
            \(note)\(mapping?.html(t))
            <p class="actions"><button class="btn primary" name="do" value="start">\(begin)</button>
            \(tryIt)</form>
            """
        return Part.card(mapping == nil ? begin : t("Columns"), id: "start", body)
    }

    // MARK: Reports

    private func dryRun(_ result: ImportDryRun?, _ t: Words) -> HTML {
        guard let result else { return .empty }
        var list = KeyValues()
        list.add(t("Records"), text: t.number(result.counts.records))
        list.add(t("Would be imported"), text: t.number(result.counts.imported))
        list.add(t("Would be updated"), text: t.number(result.counts.updated))
        list.add(t("Would be skipped"), text: t.number(result.counts.skipped))
        list.add(t("Would be rejected"), text: t.number(result.counts.rejected))
        let failure = result.failure.map { Part.note(HTML(text: $0), .bad) }
        let table = result.reasons.isEmpty ? .empty : self.table(of: result.reasons, t)
        return Part.card(t("Dry run"), id: "dry-run", "\(failure)\(list.html)\(table)")
    }

    private func rejected(_ reasons: [ImportReason], of job: ImportJob, _ visit: Visit) -> HTML {
        let t = visit.t
        guard job.counts.records > 0 else { return .empty }
        guard !reasons.isEmpty else {
            return Part.card(t("Rejected lines"), "<p>\(t("No line was rejected."))</p>")
        }
        return Part.card(
            t("Rejected lines"),
            id: "rejected",
            """
            \(table(of: reasons, t))
            <p><a class="btn" href="\(visit.address("import", String(job.id), "rejected.csv"))">\
            \(t("The first 1,000 as CSV"))</a></p>
            """
        )
    }

    private func table(of reasons: [ImportReason], _ t: Words) -> HTML {
        Table(
            caption: t("Rejected lines by reason"),
            columns: [
                .init(t("Reason")), .init(t("Lines"), .number), .init(t("Examples"), width: 1),
            ],
            rows: reasons.map { reason in
                [
                    Part.own(reason.reason), HTML(text: t.number(reason.lines)),
                    HTML(
                        text: t(
                            "line {lines}",
                            ["lines": reason.examples.map(t.number).joined(separator: "; ")]
                        )
                    ),
                ]
            }
        ).html
    }
}

/// The columns of a CSV file, each with the field that it fills.
struct ImportMapping {
    /// Shown with a choice; columns after them keep their usual fields.
    static let shown = 200

    private let names: [String]
    /// The chosen fields.
    private let fields: [String]
    /// Why the columns cannot be read.
    let unreadable: String?

    init(_ names: [String], _ options: ImportOptions, _ form: Form) {
        self.names = names
        fields = names.enumerated().map { index, name in
            let chosen = index < Self.shown ? form["column\(index)"] : nil
            return chosen ?? options.columns[name] ?? CSVMapping.usualField(of: name)
        }
        unreadable = nil
    }

    init(unreadable: String) {
        (names, fields, self.unreadable) = ([], [], unreadable)
    }

    /// The fields by column, for the import.
    var columns: [String: String] {
        Dictionary(zip(names, fields)) { first, _ in first }
    }

    /// Returns why the import cannot begin with these fields; `nil` if it can.
    func problem(_ t: Words) -> String? {
        if let unreadable { return unreadable }
        do throws(ImportError) {
            _ = try CSVMapping(header: names, given: columns)
            return nil
        } catch {
            return error.description
        }
    }

    func html(_ t: Words) -> HTML {
        guard unreadable == nil else { return .empty }
        let known = CSVMapping.choices.map { ($0, $0) }
        let selects = zip(names, fields).prefix(Self.shown).enumerated().map {
            index,
            pair -> HTML in
            let (name, field) = pair
            var options = [(CSVMapping.skip, t("Leave it out"))] + known
            if !options.contains(where: { $0.0 == name }) {
                options.append((name, t("A field of its own name")))
            }
            if !options.contains(where: { $0.0 == field }) { options.append((field, field)) }
            return Field("column\(index)", name).select(field, options)
        }
        let rest: HTML =
            names.count > Self.shown
            ? """
            <p class="hint">\(t("Only the first {count} columns are shown; the others keep their names.", [
                "count": t.number(Self.shown)
            ]))</p>
            """ : .empty
        return """
            <p>\(t("Each column of the file fills a field of a device."))</p>
            <div class="columns">\(selects)</div>\(rest)
            """
    }
}
