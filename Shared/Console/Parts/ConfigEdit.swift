import ConfigStorage
import JSON
import RemoteConfig

/// A template in the editor, as the form carries it.
struct ConfigEdit: Sendable {
    /// A sentence for the person.
    struct Problem: Error { let sentence: String }

    /// The limit of a template's text; larger ones are published by commands.
    static let maximumTextBytes = 1 << 20
    /// A form's escapes make the text up to three times as long.
    static let maximumFormBytes = 4 << 20

    /// The version that was edited; 0: none was published.
    let base: Int
    let text: String
    var description = ""

    init(base: Int, text: String) {
        self.base = base
        self.text = text
    }

    /// - Throws: `ConsoleError.badForm`.
    init(_ form: Form) throws {
        guard let base = Int(form.text("base")), (0...ConfigStore.maximumVersion).contains(base),
            let text = form["template"]
        else { throw ConsoleError.badForm }
        self.init(base: base, text: text)
        description = form.text("description")
    }

    /// The same template as people read it.
    var indented: ConfigEdit {
        guard let value = try? ConfigTemplate.json(Array(text.utf8)) else { return self }
        var edit = ConfigEdit(base: base, text: value.indented)
        edit.description = description
        return edit
    }

    /// The description of the new version: the form's, else the template's own.
    func published(_ template: ConfigTemplate) -> String {
        description.isEmpty ? template.versionDescription : description
    }
}

extension Visit {
    /// The person as a template's versions name one; clients require an email address.
    var configUser: ConfigUser {
        let actor = session.actor
        return ConfigUser(name: actor, email: actor.contains("@") ? actor : "\(actor)@\(app)")
    }
}
