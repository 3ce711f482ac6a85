package import JSON

/// Azure's templates: a device says once how its messages look, a send brings only the words.
package enum HubTemplate {
    /// Where an installation keeps what only Azure's surface reads and writes.
    package static let field = "_azure"
    package static let maximumNames = 100
    /// Of these, how many may be there for an app key to add another.
    package static let maximumNamesOfClients = 50
    /// Of one template as it is kept: no provider takes a payload so long.
    package static let maximumBytes = 8000

    /// The key under which a template is kept: a dot in its name would divide a path.
    package static func key(_ name: String) -> String {
        String(name.map { $0 == "." ? "$" : $0 })
    }

    package static func isName(_ name: String) -> Bool {
        TagName.isValid(name) && name.utf8.allSatisfy { $0 < 0x80 && $0 != UInt8(ascii: "=") }
    }

    /// One send: to the devices that hold the template of this name, filled with these words.
    package struct Send: Sendable, Equatable {
        package var name: String
        /// Texts by their names in lower case: case does not count.
        package var properties: TextMap<String>

        package init(name: String, properties: TextMap<String>) {
            self.name = name
            self.properties = properties
        }

        /// The path of the template in an installation's fields, as its deliveries carry it.
        package var valueField: String { "\(HubTemplate.field).templates.\(HubTemplate.key(name))" }

        /// The devices that hold it, those of them that the expression means where there is one: a
        /// template's tags count beside the device's.
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
