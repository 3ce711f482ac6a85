import Gateway
import HTTPServer
import Importing
import InstallationStorage
import PushCore
import Storage

/// The pages of imports: a file of another platform's devices is uploaded, mapped, tried and imported.
/// Replicas do the work (`ImportWorker`); the pages give them tasks and show their progress.
extension ConsoleSurface {
    var importRoutes: [SurfaceRoute] {
        [
            page(.get, "/import", for: .admin) { .page(try await importList($0)) },
            upload("/import", for: .admin) { try await uploadImport($0, $1) },
            page(.get, "/import/:job", for: .admin) { .page(try await importPage($0)) },
            page(.post, "/import/:job", for: .admin) { try await changeImport($0) },
            page(.get, "/import/:job/stop", for: .admin) { .page(try await importStopPage($0)) },
            page(.post, "/import/:job/stop", for: .admin) { try await stopImport($0) },
            page(.get, "/import/:job/rejected.csv", for: .admin) { try await rejectedLines($0) },
        ]
    }

    private static let listed = 25

    // MARK: List

    /// `GET /console/{app}/import`.
    private func importList(_ visit: Visit, problem: String? = nil) async throws -> Page {
        let t = visit.t
        let jobs = try await database.imports.list(app: visit.app, limit: Self.listed)
        let table = Table(
            caption: t("Imports"),
            columns: [
                .init(t("File")), .init(t("State")), .init(t("Records"), .number),
                .init(t("Rejected"), .number), .init(t("Started (UTC)"), width: 1),
            ],
            rows: jobs.map { job in
                [
                    """
                    <a href="\(visit.address("import", String(job.id)))">\(Part.own(job.fileName))</a>\
                    <span class="sub">\(job.format.title) \(Part.own(job.author))</span>
                    """,
                    job.state.pill(t), HTML(text: t.number(job.counts.records)),
                    HTML(text: t.number(job.counts.rejected)), t.time(job.createdAt),
                ]
            },
            empty: """
                <p>\(t("Nothing was imported yet. An import moves the devices of another platform here."))</p>
                """
        )
        var page = Page(
            t("Import"),
            .imports,
            body: """
                <div class="stack">\(Part.card(t("New import"), newImport(visit, problem)))
                <div id="list">\(table.html)</div></div>
                """
        )
        page.lead = HTML(
            text: t("Devices keep their ids, times and fields. No push is sent to them.")
        )
        return page
    }

    private func newImport(_ visit: Visit, _ problem: String?) -> HTML {
        let t = visit.t
        let formats = ImportFormat.allCases.map { ($0.rawValue, $0.title) }
        let hint = t(
            "Plain or gzip, up to {size} here. For a larger file run carillon import in a terminal.",
            ["size": "1 GiB"]
        )
        let error = problem.map { text -> HTML in "<p class=\"error\" id=\"file-error\">\(text)</p>"
        }
        let described: HTML = problem == nil ? "file-hint" : "file-hint file-error"
        let isInvalid: HTML = problem == nil ? .empty : " aria-invalid=\"true\""
        return """
            <form method="post" enctype="multipart/form-data" action="\(visit.address("import"))">\
            \(visit.formToken)
            \(Field("format", t("From")).select(ImportFormat.leancloud.rawValue, formats))
            \(Field("existing", t("Devices that exist already")).select(
                ExistingRule.newer.rawValue, ExistingRule.allCases.map { ($0.rawValue, $0.title(t)) }))
            <div class="field"><label for="file">\(t("File"))</label>
            <input id="file" name="file" type="file" required aria-describedby="\(described)"\(isInvalid)>
            <p class="hint" id="file-hint">\(hint)</p>\(error)</div>
            <button class="btn primary">\(t("Upload"))</button>
            <p class="hint">\(t("Nothing is imported yet: the next page shows what would be."))</p></form>
            """
    }

    // MARK: Upload

    /// `POST /console/{app}/import`: stores the file as it arrives.
    private func uploadImport(_ visit: Visit, _ file: UploadedFile) async throws -> PageAnswer {
        let t = visit.t
        guard let format = ImportFormat(rawValue: visit.form.text("format")),
            let existing = ExistingRule(rawValue: visit.form.text("existing"))
        else { throw ConsoleError.badForm }
        guard !file.name.isEmpty else { return try await refusedUpload(t("Choose a file."), visit) }
        let uploads = database.importUploads
        let begun = try await uploads.begin(
            app: visit.app,
            format: format,
            fileName: file.name,
            options: ImportOptions(existing: existing),
            author: visit.session.actor
        )
        guard let id = begun else {
            throw ConsoleError.conflict(
                t(
                    "The app has {count} stored files. Import or stop one first.",
                    ["count": t.number(ImportUploadStore.mostFiles)]
                )
            )
        }
        visit.note("import \(id)")
        do {
            let bytes = try await store(file, as: id)
            guard bytes > 0 else {
                try await uploads.abandon(id)
                return try await refusedUpload(t("The file is empty."), visit)
            }
        } catch {
            try? await uploads.abandon(id)
            throw error
        }
        return .redirect(visit.address("import", String(id)), flash: .uploaded)
    }

    private func refusedUpload(_ problem: String, _ visit: Visit) async throws -> PageAnswer {
        var page = try await importList(visit, problem: problem)
        page.status = 422
        return .page(page)
    }

    /// Stores a file in parts.
    ///
    /// - Returns: Its bytes; an empty file is not marked as whole.
    private func store(_ file: UploadedFile, as id: Int) async throws -> Int {
        let uploads = database.importUploads
        var file = file
        var part: [UInt8] = []
        var (number, total) = (0, 0)
        var isGzip = false
        func flush(_ bytes: [UInt8]) async throws {
            if number == 0 { isGzip = bytes.starts(with: [0x1f, 0x8b]) }
            try await uploads.append(bytes, number: number, to: id)
            number += 1
        }
        while let bytes = try await file.next() {
            total += bytes.count
            part += bytes
            while part.count >= ImportParts.partBytes {
                try await flush(Array(part.prefix(ImportParts.partBytes)))
                part.removeFirst(ImportParts.partBytes)
            }
        }
        if !part.isEmpty { try await flush(part) }
        if total > 0 {
            try await uploads.finish(id, parts: number, bytes: total, isGzip: isGzip)
        }
        return total
    }

    // MARK: Acts

    func importJob(of visit: Visit) async throws -> ImportJob {
        let text = visit.parameter("job")
        guard let id = Int(text), id > 0,
            let job = try await database.imports.find(app: visit.app, id: id)
        else {
            throw ConsoleError.missing(
                visit.t("This app has no import {id}.", ["id": String(text.prefix(20))])
            )
        }
        return job
    }

    /// `POST /console/{app}/import/{job}`: a dry run, the start, a pause, or its continuation.
    private func changeImport(_ visit: Visit) async throws -> PageAnswer {
        let t = visit.t
        let job = try await importJob(of: visit)
        let address = visit.address("import", String(job.id))
        let act = visit.form.text("do")
        visit.note("import \(job.id)")
        if !act.isEmpty { visit.note(String(act.prefix(20))) }
        switch act {
        case "dry-run", "start":
            var options: ImportOptions?
            if job.format == .csv, job.counts.records == 0 {
                let mapping = try await mapping(of: job, visit)
                if let problem = mapping.problem(t) {
                    var page = try await importPage(visit, mapping: mapping, problem: problem)
                    page.status = 422
                    return .page(page)
                }
                options = ImportOptions(existing: job.options.existing, columns: mapping.columns)
            }
            let isOrdered = try await database.importUploads.order(
                act == "start" ? .run : .dryRun,
                job.id,
                app: visit.app,
                options: options
            )
            guard isOrdered else {
                throw ConsoleError.conflict(
                    t("The import runs already, has ended, or has no file.")
                )
            }
            return .redirect(address, flash: act == "start" ? .importing : .dryRunning)
        case "pause":
            _ = try await database.importUploads.pause(job.id, app: visit.app)
            return .redirect(address, flash: .paused)
        default: throw ConsoleError.badForm
        }
    }

    /// Reads the columns of a CSV file, with the fields that a form has chosen for them.
    func mapping(of job: ImportJob, _ visit: Visit) async throws -> ImportMapping {
        guard let upload = try await database.importUploads.find(job.id, app: visit.app),
            upload.isWhole
        else { throw ConsoleError.conflict(visit.t("The file is not stored any more.")) }
        do throws(ImportError) {
            let input = ImportInput.parts(database.importUploads.parts(of: upload))
            return ImportMapping(try await input.columns(), job.options, visit.form)
        } catch {
            return ImportMapping(unreadable: error.description)
        }
    }

    private func importStopPage(_ visit: Visit) async throws -> Page {
        let t = visit.t
        let job = try await importJob(of: visit)
        guard try await database.importUploads.find(job.id, app: visit.app) != nil else {
            throw ConsoleError.conflict(t("This import has ended, or runs in a terminal."))
        }
        var list = KeyValues()
        list.add(t("File"), Part.own(job.fileName))
        list.add(t("Imported"), text: t.number(job.counts.imported))
        list.add(t("Updated"), text: t.number(job.counts.updated))
        var page = Page(
            t("Stop this import?"),
            .imports,
            body: """
                <form class="card stack" method="post" \
                action="\(visit.address("import", String(job.id), "stop"))">\(visit.formToken)
                \(list.html)
                <p>\(t("The uploaded file is deleted, and the import cannot continue. What is imported stays."))</p>
                <p class="actions"><button class="btn danger">\(t("Stop the import"))</button>
                <a class="btn plain" href="\(visit.address("import", String(job.id)))">\
                \(t("Back to the import"))</a></p></form>
                """
        )
        page.crumbs = [(t("Import"), visit.address("import"))]
        return page
    }

    private func stopImport(_ visit: Visit) async throws -> PageAnswer {
        let job = try await importJob(of: visit)
        visit.note("import \(job.id)")
        // A second press finds it stopped, and changes nothing.
        _ = try await database.importUploads.stop(job.id, app: visit.app)
        return .redirect(visit.address("import", String(job.id)), flash: .stopped)
    }

    private func rejectedLines(_ visit: Visit) async throws -> PageAnswer {
        let job = try await importJob(of: visit)
        let database = database
        return .file(
            name: "rejected-\(job.id).csv",
            HTTPFile(contentType: "text/csv; charset=utf-8") { write in
                try await write(CSV.line(["line", "reason"]))
                let lines = try await database.imports.rejections(job.id, limit: 1000)
                for line in lines { try await write(CSV.line([String(line.line), line.reason])) }
            }
        )
    }
}

extension ExistingRule {
    fileprivate func title(_ t: Words) -> String {
        switch self {
        case .newer: t("Keep what changed last")
        case .keep: t("Keep the existing ones")
        case .replace: t("Replace them")
        }
    }
}

extension ImportJob.State {
    func pill(_ t: Words) -> HTML {
        switch self {
        case .running: Part.pill(t("Running"), .quiet)
        case .paused: Part.pill(t("Paused"), .warn)
        case .finished: Part.pill(t("Finished"), .ok)
        case .failed: Part.pill(t("Failed"), .bad)
        case .stopped: Part.pill(t("Stopped"), .warn)
        }
    }
}
