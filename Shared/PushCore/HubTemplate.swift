package import JSON

/// Azure's templates: a device stores the form of its messages once, and a send contains only the
/// values.
package enum HubTemplate {
    /// The field of an installation that only Azure's surface reads and writes.
    package static let field = "_azure"
    package static let maximumNames = 100
    /// The number of an app's template names up to which an app key may add another.
    package static let maximumNamesOfClients = 50
    /// The most bytes of a stored template. No provider accepts such a long payload.
    package static let maximumBytes = 8000

    /// Returns the key under which a template is stored. Replaces dots, which would divide the
    /// path.
    package static func key(_ name: String) -> String {
        String(name.map { $0 == "." ? "$" : $0 })
    }

    package static func isName(_ name: String) -> Bool {
        TagName.isValid(name) && name.utf8.allSatisfy { $0 < 0x80 && $0 != UInt8(ascii: "=") }
    }

    /// A send to the devices that have the template `name`, filled with `properties`.
    package struct Send: Sendable, Equatable {
        package var name: String
        /// The values by name. Names are in lower case, as case is ignored.
        package var properties: ExactStringMap<String>

        package init(name: String, properties: ExactStringMap<String>) {
            self.name = name
            self.properties = properties
        }

        /// The path of the template in an installation's fields. The values of a delivery have this
        /// key.
        package var valueField: String { "\(HubTemplate.field).templates.\(HubTemplate.key(name))" }

        /// Returns the condition for the devices that have the template, narrowed by a tag
        /// expression if there is one. A template's tags count like the device's tags.
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
