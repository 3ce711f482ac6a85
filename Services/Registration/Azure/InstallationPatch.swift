import AzureHub
import JSON

/// Azure's JSON Patch of one installation, applied whole or not at all.
struct InstallationPatch: Equatable, Sendable {
    private enum Kind: String {
        case add, remove, replace
    }

    private struct Operation: Equatable, Sendable {
        let kind: Kind
        let path: [String]
        let value: JSONValue?
        /// The operation's number in errors.
        let number: Int

        func problem(_ text: String) -> AzureError {
            AzureError("operation \(number): \(text)")
        }

        var unknownPath: AzureError { problem("there is nothing at its path") }
    }

    private static let maximumOperations = 1000
    private let operations: [Operation]

    init(_ body: JSONValue) throws(AzureError) {
        guard let list = body.array else {
            throw AzureError("a patch is a JSON array of operations")
        }
        guard list.count <= Self.maximumOperations else {
            throw AzureError("a patch holds at most \(Self.maximumOperations) operations")
        }
        var operations: [Operation] = []
        for (index, entry) in list.enumerated() {
            guard let kind = entry["op"]?.string.flatMap({ Kind(rawValue: $0.lowercased()) }) else {
                throw AzureError("operation \(index): op must be add, remove or replace")
            }
            guard let path = entry["path"]?.string, path.first == "/" else {
                throw AzureError("operation \(index): path must begin with a slash")
            }
            let value = entry["value"]
            operations.append(
                Operation(
                    kind: kind,
                    path: path.dropFirst().split(separator: "/", omittingEmptySubsequences: false)
                        .map(Self.unescaped),
                    value: value,
                    number: index
                )
            )
        }
        self.operations = operations
    }

    /// Whether an operation names the device's channel.
    var namesChannel: Bool {
        operations.contains { $0.path[0].lowercased() == "pushchannel" }
    }

    private static func unescaped(_ part: Substring) -> String {
        var result = ""
        var rest = part
        while let character = rest.popFirst() {
            if character == "~", rest.first == "0" || rest.first == "1" {
                result.append(rest.removeFirst() == "0" ? "~" : "/")
            } else {
                result.append(character)
            }
        }
        return result
    }

    /// - Throws: `AzureError` 400 for the first invalid operation. Then no operation is applied.
    func applied(to installation: HubInstallation) throws(AzureError) -> HubInstallation {
        var result = installation
        for operation in operations { try apply(operation, to: &result) }
        try result.check(before: installation)
        return result
    }

    private func apply(
        _ operation: Operation,
        to installation: inout HubInstallation
    ) throws(AzureError) {
        let path = operation.path
        switch (path[0].lowercased(), path.count) {
        case ("userid", 1):
            if operation.kind == .remove {
                installation.userID = nil
            } else {
                installation.userID = try HubInstallation.userID(try value(operation))
            }
        case ("expirationtime", 1):
            if operation.kind == .remove {
                installation.expirationTime = nil
            } else {
                installation.expirationTime = try HubJSON.time(
                    try value(operation),
                    "expirationTime"
                )
            }
        case ("pushvariables", 2):
            if operation.kind == .remove {
                installation.pushVariables.removeValue(forKey: path[1])
            } else {
                installation.pushVariables[path[1]] = try value(operation)
            }
        case ("secondarytiles", 2...): try applyToTile(operation, of: &installation)
        default: try apply(operation, path[...], to: &installation.channel)
        }
    }

    private func applyToTile(
        _ operation: Operation,
        of installation: inout HubInstallation
    ) throws(AzureError) {
        let name = operation.path[1]
        guard operation.path.count > 2 else {
            guard operation.kind != .remove else {
                installation.secondaryTiles[name] = nil
                return
            }
            guard let tile = try structure(operation).object else {
                throw operation.problem("a tile is an object")
            }
            installation.secondaryTiles[name] = try HubChannel(tile, in: "secondaryTiles.")
            return
        }
        var tile = installation.secondaryTiles[name]
        // An operation on a tile's channel creates a missing tile.
        if tile == nil, operation.path[2].lowercased() == "pushchannel", operation.kind != .remove {
            tile = HubChannel(pushChannel: "")
        }
        guard var tile else { throw operation.unknownPath }
        try apply(operation, operation.path[2...], to: &tile)
        installation.secondaryTiles[name] = tile
    }

    private func apply(
        _ operation: Operation,
        _ path: ArraySlice<String>,
        to channel: inout HubChannel
    ) throws(AzureError) {
        let path = Array(path)
        switch (path[0].lowercased(), path.count) {
        case ("pushchannel", 1):
            guard operation.kind != .remove else {
                throw operation.problem("an installation cannot be without a pushChannel")
            }
            channel.pushChannel = try value(operation)
        case ("tags", 1...2): try apply(operation, path[1...], toTags: &channel.tags)
        case ("templates", 2):
            if operation.kind == .remove {
                channel.setTemplate(path[1], nil)
            } else {
                let template = try HubChannel.Template(try structure(operation), in: "templates")
                channel.setTemplate(path[1], template)
            }
        case ("templates", 3...4):
            guard var template = channel.template(path[1]) else { throw operation.unknownPath }
            try apply(operation, path[2...], to: &template)
            channel.setTemplate(path[1], template)
        default: throw operation.unknownPath
        }
    }

    private func apply(
        _ operation: Operation,
        _ path: ArraySlice<String>,
        to template: inout HubChannel.Template
    ) throws(AzureError) {
        let path = Array(path)
        switch (path[0].lowercased(), path.count, operation.kind) {
        case ("body", 1, .add), ("body", 1, .replace):
            guard let text = operation.value?.string, !text.isEmpty else {
                throw operation.problem("a body is a string")
            }
            template.body = text
        case ("headers", 1, .remove): template.headers = [:]
        case ("headers", 1, _):
            template.headers = try HubJSON.headers(try structure(operation), "headers")
        case ("expiry", 1, .remove): template.expiry = nil
        case ("expiry", 1, _):
            template.expiry = try HubJSON.time(try value(operation), "expiry")
        case ("tags", 1...2, _): try apply(operation, path[1...], toTags: &template.tags)
        default: throw operation.unknownPath
        }
    }

    /// Applies an operation to tags. A path names a tag by its text, never by an index. At `-`, the
    /// end of the list (RFC 6902), the value is added. Removing a missing tag succeeds.
    private func apply(
        _ operation: Operation,
        _ path: ArraySlice<String>,
        toTags tags: inout [String]
    ) throws(AzureError) {
        switch (path.first, operation.kind) {
        case (nil, .remove): tags = []
        case (nil, .add), (nil, .replace), ("-", .add):
            let named = try self.tags(operation)
            if operation.kind == .replace { tags = [] }
            tags = (tags + named).withoutRepeats()
        case (let tag?, .remove): tags.removeAll { $0.isSame(as: tag) }
        case (let tag?, .add): if !tags.holds(tag) { tags.append(tag) }
        case (_?, .replace): throw operation.problem("a single tag cannot be replaced")
        }
    }

    // MARK: Values

    private func value(_ operation: Operation) throws(AzureError) -> JSONValue {
        guard let value = operation.value else { throw operation.problem("its value is missing") }
        return value
    }

    /// Parses a structure, which the SDKs send as a string.
    private func structure(_ operation: Operation) throws(AzureError) -> JSONValue {
        let value = try value(operation)
        guard let text = value.string else { return value }
        guard let parsed = try? JSONValue.parse(Array(text.utf8), maximumDepth: 32) else {
            throw operation.problem("its value is not JSON")
        }
        return parsed
    }

    /// Parses one tag, or a list of them, as JSON or as a string.
    private func tags(_ operation: Operation) throws(AzureError) -> [String] {
        let value = try value(operation)
        if let text = value.string, text.first(where: { !$0.isWhitespace }) != "[" { return [text] }
        return try HubJSON.tags(try structure(operation), "tags")
    }
}
