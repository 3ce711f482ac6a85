package import JSON

/// Azure's templates: a device stores the form of its messages once, a send contains only the values.
package enum HubTemplate {
    /// The field of an installation that only Azure's surface reads and writes.
    package static let field = "_azure"
    package static let maximumNames = 100
    /// The limit of template names up to which an app key may add another.
    package static let maximumNamesOfClients = 50
    /// The limit of one stored template: no provider accepts a payload so long.
    package static let maximumBytes = 8000

    /// Returns the key under which a template is stored: a dot in its name would divide a path.
    package static func key(_ name: String) -> String {
        String(name.map { $0 == "." ? "$" : $0 })
    }

    package static func isName(_ name: String) -> Bool {
        TagName.isValid(name) && name.utf8.allSatisfy { $0 < 0x80 && $0 != UInt8(ascii: "=") }
    }

    /// A send to the devices that have the template of this name, filled with these values.
    package struct Send: Sendable, Equatable {
        package var name: String
        /// Strings by their names in lower case: case does not count.
        package var properties: ExactStringMap<String>

        package init(name: String, properties: ExactStringMap<String>) {
            self.name = name
            self.properties = properties
        }

        /// The path of the template in an installation's fields, as its deliveries carry it.
        package var valueField: String { "\(HubTemplate.field).templates.\(HubTemplate.key(name))" }

        /// Returns the condition for the devices that have it, narrowed by the tag expression if
        /// there is one: a template's tags count like the device's.
        func condition(_ tags: TagExpression?) -> Where {
            let path = [HubTemplate.field, "templates", HubTemplate.key(name), "tags"]
            let holds = Where.field(
                WherePath(segments: [HubTemplate.field, "templateNames"]),
                .equal(.string(name))
            )
            guard let tags else { return holds }
            return .all([holds, tags.condition(also: WherePath(segments: path))])
        }
    }
}
