import JSON

/// The `audience_topic` of a push. One message to FCM reaches the topic's subscribers there.
/// Installations on other platforms are selected if the topic's name is among their channels.
package struct AudienceTopic: Sendable, Equatable {
    /// The name in FCM's form, without the prefix `/topics/`.
    package var name: String
    /// The version in an announcement of remote config: installations on other platforms that were
    /// given this version or a later one are left out.
    package var configVersion: Int?

    package init(name: String, configVersion: Int? = nil) {
        self.name = name
        self.configVersion = configVersion
    }

    /// The selectors of the installations that get separate notifications.
    package var selectors: PushRequest.Selectors {
        var selectors = PushRequest.Selectors(channels: [name])
        selectors.exceptFCM = true
        selectors.configBelow = configVersion
        return selectors
    }

    /// The name of its single FCM delivery, in the ledger and on `push.outcomes`.
    package var target: String { Self.targetPrefix + name }

    /// A prefix that no installation id and no token hash has.
    package static let targetPrefix = "topic:"
}

extension PushRequest.Audience {
    /// The selectors of the installations that get separate notifications; `nil` for a push to
    /// tokens.
    package var selectors: PushRequest.Selectors? {
        switch self {
        case .tokens: nil
        case .installations(let selectors): selectors
        case .topic(let topic): topic.selectors
        }
    }
}

extension AudienceTopic {
    /// The additional fields of a record on `PUSH_RC`.
    static let configFields = ["configVersion", "namespace", "updateType"]
    /// The namespace that clients fetch.
    private static let clientNamespace = "firebase"

    private static let prefix = "/topics/"
    private static let maximumBytes = 900
    /// The largest integer that JavaScript represents exactly.
    private static let maximumVersion = 1 << 53

    /// - Returns: The topic; `nil` if the request has no audience topic.
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

    /// Reads a whole number, or its decimal text.
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
