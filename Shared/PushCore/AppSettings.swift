package import JSON

/// What an operator decides for one app: `carillon app set <app> <name>=<value>`.
package struct AppSettings: Sendable, Equatable {
    /// `mpns`: whether Windows Phone's old channels are sent to.
    package var sendsToMPNS = true

    /// From what is stored; what this version does not know, it leaves alone.
    package init(_ object: JSONObject = [:]) {
        sendsToMPNS = object["mpns"]?.bool ?? true
    }

    /// A setting that is none, or a value that it does not take.
    package struct InvalidChange: Error, Equatable, Sendable, CustomStringConvertible {
        package let description: String
    }

    private static let planned = [
        "client-push", "valid-days", "delete-days", "secure-ids",
    ]

    /// What `name=value` changes in what is stored.
    package static func change(_ text: String) throws(InvalidChange) -> JSONObject {
        let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        let name = String(parts[0])
        guard parts.count == 2 else {
            throw InvalidChange(description: "a setting is name=value, as in mpns=off")
        }
        switch (name, parts[1]) {
        case ("mpns", "on"): return ["mpns": true]
        case ("mpns", "off"): return ["mpns": false]
        case ("mpns", _): throw InvalidChange(description: "mpns must be on or off")
        case (_, _) where planned.contains(name):
            throw InvalidChange(description: "the setting \(name) is not in this version")
        case _: throw InvalidChange(description: "there is no setting \(name)")
        }
    }
}
