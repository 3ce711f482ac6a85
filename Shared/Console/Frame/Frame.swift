import HTTPServer
import PushCore

/// Draws the frame of every page: head, menu, breadcrumbs, footer.
struct Frame {
    let t: Words
    let look: Look
    let files: StaticFiles

    /// Draws a page of an app.
    func html(_ page: Page, _ visit: Visit, flash: Flash?) -> HTML {
        let note = flash.map { flash -> HTML in
            """
            <div class="note ok" role="status" tabindex="-1" id="flash" autofocus>\
            <p>\(flash.text(t))</p></div>
            """
        }
        return document(
            title: "\(page.title) · \(visit.app) · Carillon",
            """
            <a class="skip" href="#main">\(t("Skip to content"))</a>
            <div class="frame">
            \(side(page.section, visit))
            <div class="page">
            \(bar(visit))
            <main id="main" tabindex="-1">
            \(crumbs(page, visit))\(note)
            <div class="head"><div><h1>\(page.title)\(page.marks)</h1>\(lead(page))</div>\
            <div class="actions">\(page.actions)</div></div>
            \(page.body)
            </main>
            \(footer)
            </div></div>
            """
        )
    }

    /// Draws a page without an app: the sign-in page, an error.
    func plain(title: String, _ body: HTML) -> HTML {
        document(
            title: "\(title) · Carillon",
            """
            <main id="main" class="alone">
            <p class="brand">\(Self.mark)Carillon</p>
            <h1>\(title)</h1>
            \(body)
            \(lookForm(next: nil))
            </main>
            """
        )
    }

    private func document(title: String, _ body: HTML) -> HTML {
        """
        <!doctype html>
        <html lang="\(t.language.rawValue)" data-theme="\(look.theme.rawValue)">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>\(title)</title>
        <link rel="icon" href="\(files.address(of: .mark))">
        <link rel="stylesheet" href="\(files.address(of: .style))">
        <script src="\(files.address(of: .script))" defer></script>
        </head>
        <body>
        \(body)
        <p class="hidden" id="voice" role="status"></p>
        </body>
        </html>

        """
    }

    private func lead(_ page: Page) -> HTML {
        page.lead.isEmpty ? .empty : "<p class=\"lead\">\(page.lead)</p>"
    }

    private func crumbs(_ page: Page, _ visit: Visit) -> HTML {
        guard !page.crumbs.isEmpty else { return .empty }
        let links = page.crumbs.map { crumb -> HTML in
            "<li><a href=\"\(crumb.address)\">\(crumb.text)</a></li>"
        }
        return """
            <nav class="crumbs" aria-label="\(t("Breadcrumbs"))"><ol>\
            <li><a href="\(visit.address())">\(visit.app)</a></li>\(links)</ol></nav>
            """
    }

    // MARK: Menu

    private func side(_ current: Section, _ visit: Visit) -> HTML {
        let groups = Section.groups.map { group -> HTML in
            let heading = group.title.map { title -> HTML in "<h2>\(t(title))</h2>" }
            let items = group.sections.filter { visit.role >= $0.needs }.map { section -> HTML in
                let address = section.segment.map { visit.address($0) } ?? visit.address()
                let mark: HTML = section == current ? " aria-current=\"page\"" : ""
                return "<li><a href=\"\(address)\"\(mark)>\(section.title(t))</a></li>"
            }
            return "\(heading)<ul>\(items)</ul>"
        }
        return """
            <aside class="side" id="side" popover>
            <a class="brand" href="\(visit.address())">\(Self.mark)Carillon</a>
            <p class="app"><span class="hidden">\(t("App"))</span> <strong>\(visit.app)</strong></p>
            <nav aria-label="\(t("Main"))">\(groups)</nav>
            <div class="who">
            <p><bdi>\(visit.session.actor)</bdi><span class="faint">\(visit.role.name(t))</span></p>
            <form method="post" action="\(Address("sign-out"))">\(visit.formToken)\
            <button class="btn small">\(t("Sign out"))</button></form>
            \(lookForm(next: visit))
            </div>
            </aside>
            """
    }

    private func bar(_ visit: Visit) -> HTML {
        """
        <header class="bar"><button type="button" class="btn plain" popovertarget="side">\
        \(t("Menu"))</button><a class="brand" href="\(visit.address())">\(Self.mark)\
        <span>\(visit.app)</span></a></header>
        """
    }

    /// The choices of theme and language: a form, so that they work without the script.
    private func lookForm(next: Visit?) -> HTML {
        let themes = [
            (Look.Theme.system, t("System")), (.light, t("Light")), (.dark, t("Dark")),
        ].map { theme, name -> HTML in
            """
            <option value="\(theme.rawValue)"\("selected", if: theme == look.theme)>\
            \(name)</option>
            """
        }
        let languages = Language.allCases.map { language -> HTML in
            """
            <option value="\(language.rawValue)" lang="\(language.rawValue)"\
            \("selected", if: language == t.language)>\(language.name)</option>
            """
        }
        let path = next.map { visit -> HTML in
            "<input type=\"hidden\" name=\"next\" value=\"\(visit.request.rawTarget)\">"
        }
        return """
            <form class="look" method="post" action="\(Address("look"))">\(path)
            <label><span>\(t("Theme"))</span><select name="theme">\(themes)</select></label>
            <label><span>\(t("Language"))</span><select name="language">\(languages)</select></label>
            <button class="btn small">\(t("Apply"))</button></form>
            """
    }

    private var footer: HTML {
        let updated = t.html(
            "Updated {time} UTC",
            ["time": HTML(text: t.clock(t.now))]
        )
        return "<footer class=\"foot\"><p>\(updated)</p></footer>"
    }

    /// Three bells of decreasing size on a beam.
    private static let mark: HTML = """
        <svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><path d="M2 5h28v2H2zM4 21c2-3 \
        1-12 5-12s3 9 5 12zM17 17c1.4-2 .7-8 3.5-8s2.100 6 3.500 8zM25.500 14c.9-1.300.4-5 2.200-5\
        s1.300 3.700 2.200 5z"/><circle cx="9" cy="24" r="1.800"/><circle cx="20.500" cy="19.400" \
        r="1.300"/><circle cx="27.700" cy="15.900" r=".9"/></svg>
        """
}
