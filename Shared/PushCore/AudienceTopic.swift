import JSON

/// `audience_topic`: FCM tells its subscribers by one message; of the other platforms' installations
/// those hear it that hold its name among their channels.
package struct AudienceTopic: Sendable, Equatable {
    /// As FCM has it, without `/topics/` in front.
    package var name: String
    /// Of an announcement of remote config: installations that were given this version already, or a
    /// later one, are left out where they are told one by one.
    package var configVersion: Int?

    package init(name: String, configVersion: Int? = nil) {
        self.name = name
        self.configVersion = configVersion
    }

    /// Those that are told one by one.
    package var selectors: PushRequest.Selectors {
        var selectors = PushRequest.Selectors(channels: [name])
        selectors.exceptFCM = true
        selectors.configBelow = configVersion
        return selectors
    }

    /// What its one delivery at FCM is called on the ledger and on `push.outcomes`.
    package var target: String { Self.targetPrefix + name }

    /// No installation and no token is called so.
    package static let targetPrefix = "topic:"
}

extension PushRequest.Audience {
    /// The installations that are told one by one; `nil`: none are, but tokens.
    package var selectors: PushRequest.Selectors? {
        switch self {
        case .tokens: nil
        case .installations(let selectors): selectors
        case .topic(let topic): topic.selectors
        }
    }
}

extension AudienceTopic {
    /// Of a record on `PUSH_RC`, beside what every push may have.
    static let configFields = ["configVersion", "namespace", "updateType"]
    /// The namespace that clients fetch.
    private static let clientNamespace = "firebase"

    private static let prefix = "/topics/"
    private static let maximumBytes = 900
    /// What JavaScript counts exactly.
    private static let maximumVersion = 1 << 53

    /// - Returns: `nil` where the request is for no topic.
    /// - Throws: `PushRequestError` that names the field.
    init?(_ fields: FieldReader) throws(PushRequestError) {
        guard let text = try fields.string("audience_topic") else { return nil }
        let name = text.hasPrefix(Self.prefix) ? String(text.dropFirst(Self.prefix.count)) : text
        guard Self.isName(name) else {
            throw PushRequestError(
                "audience_topic",
                .invalid("must be 1 to \(Self.maximumBytes) letters, digits and - _ . ~ %")
            )
        }
        self.name = name
        let namespace = try fields.string("namespace") ?? Self.clientNamespace
        _ = try fields.string("updateType")
        let version = try Self.version(fields["configVersion"])
        if namespace == Self.clientNamespace { configVersion = version }
    }

    private static func isName(_ name: String) -> Bool {
        (1...maximumBytes).contains(name.utf8.count)
            && name.utf8.allSatisfy { ASCII.isAlphanumeric($0) || "-_.~%".utf8.contains($0) }
    }

    /// A whole number, or its decimal text.
    private static func version(_ value: JSONValue?) throws(PushRequestError) -> Int? {
        guard let value else { return nil }
        guard let version = value.integer ?? value.string.flatMap({ Int($0) }),
            (1...maximumVersion).contains(version)
        else {
            throw PushRequestError(
                "configVersion",
                .invalid("must be a whole number from 1 to 2^53")
            )
        }
        return version
    }
}
