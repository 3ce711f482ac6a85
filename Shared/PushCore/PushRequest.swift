package import JSON

/// One push as `push.requests` and `POST /1.1/push` request it.
package struct PushRequest: Sendable, Equatable {
    /// The event's id and source, if the request itself names them.
    package var id: String?
    package var source: String?
    package var app: String?
    package var audience: Audience
    /// LeanCloud's `data`: `alert`, `badge`, …, `ios`, `android`, `wp`.
    package var data: JSONObject?
    /// The fields of each installation that `data` has placeholders for; see `PushTemplate`.
    package var templateFields: [String]
    package var native: NativePayloads
    /// `template`: each device stores its own message, and the push contains the values.
    package var deviceTemplate: HubTemplate.Send?
    /// The time of sending; `nil`: at once. A past time is at once, too.
    package var pushTime: PushTime?
    package var expiration: Expiration?
    /// LeanCloud's `topic`: the APNs topic (bundle id).
    package var apnsTopic: String?
    package var apnsTeamID: String?
    /// `prod`: decides for the installations that do not name their environment themselves.
    package var environment: PushEnvironment
    package var collapseID: String?
    package var priority: Priority?
    /// `notification_id`: the sender's own label for the push's record.
    package var notificationLabel: String?
    /// `_notificationChannel`: Android's notification channel.
    package var androidChannel: String?
    /// `pace`, or LeanCloud's `flow_control`: the maximum of devices per second. Retries are not
    /// limited by it.
    package var pace: Int?
    /// `spread`: the time over which the audience is sent to, for any size. Retries and a topic
    /// message are not delayed by it.
    package var spreadMilliseconds: Int?
    /// Whether everything is done except sending.
    package var isDryRun: Bool
    /// `sdk`: the client library of the Android apps, if FCM's messages must be in its form.
    package var sdk: SDK?
    /// The fields of the request that the contract does not know. Stored in the push's record.
    package var unknownFields: [String]
    /// Whether devices get the push's id, as `pushIDKey`. Set by its app's `receipts`, not by the
    /// request.
    package var includesPushID = false
    /// The first channels of its audience, for the devices' callbacks of a channel. Set by the
    /// dispatcher, which does not keep the audience.
    package var audienceChannels: [String] = []

    package static let maximumAudienceChannels = 20

    /// The custom key for a push's id, which replaces one of the sender's.
    package static let pushIDKey = "pushId"

    package enum Audience: Sendable, Equatable {
        case installations(Selectors)
        case tokens([DirectToken])
        case topic(AudienceTopic)
    }

    /// Each selector that is present narrows the others; without any, every valid installation of
    /// the app is selected. An empty list selects no device.
    package struct Selectors: Sendable, Equatable {
        package var channels: [String]?
        package var identities: [String]?
        /// Object ids, or LeanCloud's own `installationId`.
        package var installations: [String]?
        /// The conditions of `where`, `cql` and `tags`, all of which must hold.
        package var condition: Where?
        /// Whether an audience topic selects only devices that do not get FCM's topic message.
        package var exceptFCM = false
        /// The config version of an audience topic: devices that were given it, or a later one, are
        /// left out.
        package var configBelow: Int?
        /// Whether the push is a template's, which also reaches installations for template sends.
        package var isOfTemplate = false

        package init(
            channels: [String]? = nil,
            identities: [String]? = nil,
            installations: [String]? = nil,
            condition: Where? = nil
        ) {
            self.channels = channels
            self.identities = identities
            self.installations = installations
            self.condition = condition
        }

        package var selectsNothing: Bool {
            channels == [] || identities == [] || installations == []
        }

        /// Whether it names its devices one by one, so that it does not wait behind a broadcast.
        package var isDirect: Bool { installations != nil || identities != nil }
    }

    package struct DirectToken: Sendable, Equatable {
        package var platform: Platform
        package var token: String
        /// `.none` if the entry names none: then the push's `prod` decides.
        package var environment: PushEnvironment

        package init(platform: Platform, token: String, environment: PushEnvironment = .none) {
            self.platform = platform
            self.token = token
            self.environment = environment
        }
    }

    /// A provider's own message, sent unchanged.
    package struct NativePayloads: Sendable, Equatable {
        /// `{"headers", "payload"}`.
        package var apns: JSONObject?
        /// `{"message"}`.
        package var fcm: JSONObject?
        /// `{"type", "headers", "body"}`.
        package var wns: JSONObject?
        /// `{"headers", "body"}`.
        package var mpns: JSONObject?

        package init(
            apns: JSONObject? = nil,
            fcm: JSONObject? = nil,
            wns: JSONObject? = nil,
            mpns: JSONObject? = nil
        ) {
            self.apns = apns
            self.fcm = fcm
            self.wns = wns
            self.mpns = mpns
        }

        package var isEmpty: Bool { apns == nil && fcm == nil && wns == nil && mpns == nil }
    }

    package enum Expiration: Sendable, Equatable {
        case at(Instant)
        case afterSeconds(Int)
    }

    package enum Priority: String, Sendable, CaseIterable {
        case high, normal
    }

    /// A client library that reads FCM's data itself.
    package enum SDK: String, Sendable, CaseIterable {
        /// Parse's Android SDK, which only handles messages of `push_id`, `time` and `data`.
        case parse
    }

    package init(audience: Audience, data: JSONObject? = nil) {
        self.audience = audience
        self.data = data
        templateFields = PushTemplate.fields(of: data)
        native = NativePayloads()
        environment = .production
        isDryRun = false
        unknownFields = []
    }

    /// Returns when the push expires. An interval without a `push_time` counts from `acceptedAt`, when
    /// the request came in; with a device-local `push_time`, each device has its own end, and this is
    /// the last of them. `nil` for a push that is sent now or never: it does not expire before it is
    /// sent.
    package func expiresAt(acceptedAt: Instant) -> Instant? {
        switch expiration {
        case .at(let time): time
        case .afterSeconds(0): nil
        case .afterSeconds(let seconds):
            (pushTime?.latest ?? acceptedAt).adding(milliseconds: Int64(seconds) * 1000)
        case nil: nil
        }
    }

    /// Whether each provider is to try it once and store nothing: an `expiration_interval` of 0. It is
    /// sent once, without a retry if the provider was busy.
    package var isNowOrNever: Bool { expiration == .afterSeconds(0) }

    /// Whether it goes to devices that it names one by one.
    package var isDirect: Bool {
        switch audience {
        case .tokens: true
        case .installations(let selectors): selectors.isDirect
        case .topic: false
        }
    }

    /// Whether the push is from one of Carillon's own services and the same on every repeat: an
    /// unanswered one is sent once more, as one that overwrites, and no device shows it twice.
    package var repeatsOverwrite: Bool { source.map(Self.alikeSources.contains) ?? false }

    private static let alikeSources: ExactStringSet = [
        PushIdentity.configSource, PushIdentity.secureSource, PushIdentity.syncSource,
    ]
}

/// The reason why a request is invalid. Names the field; repeats a value only if the field holds a
/// choice, a number, a time or a name, never content or a token.
package struct PushRequestError: Error, Equatable, Sendable, CustomStringConvertible {
    /// A path such as `data.badge` or `tokens[3].platform`.
    package let field: String
    package let problem: Problem

    package enum Problem: Equatable, Sendable {
        /// The expected and the found value: "must be an array of strings, not a number".
        case invalid(String)
        case missing(String)
        /// Part of the contract, not supported by this version.
        case unsupported
        case badChannelName
        /// Two fields that exclude each other.
        case conflict(with: String)
        /// Unknown fields and no known selector: a misspelt selector must not select every phone.
        case noKnownSelector
        /// An invalid `where`.
        case condition(WhereError)
    }

    package init(_ field: String, _ problem: Problem) {
        self.field = field
        self.problem = problem
    }

    package var description: String {
        switch problem {
        case .invalid(let expected): "\(field) \(expected)"
        case .missing(let expected): "\(field) is missing: \(expected)"
        case .unsupported: "\(field) is not supported yet"
        case .badChannelName:
            "\(field) is not a channel name: at most \(ChannelName.maximumBytes) bytes, and with "
                + "LeanCloud letters, digits, '_', '-', '=' and CJK only"
        case .conflict(let other): "\(field) and \(other) exclude each other"
        case .noKnownSelector:
            "unknown field \(field) and no known selector; refused, as it would go to "
                + "everyone"
        case .condition(let error): "\(field): \(error.description)"
        }
    }

    /// The error's label for `error.reason` and metrics: a closed set.
    package var label: String {
        switch problem {
        case .invalid: "invalid_field"
        case .missing: "missing_field"
        case .unsupported: "unsupported_field"
        case .badChannelName: "invalid_channel"
        case .conflict: "conflicting_fields"
        case .noKnownSelector: "unknown_field"
        case .condition: "invalid_condition"
        }
    }

    /// The code of LeanCloud's error body.
    package var leanCloudCode: Int {
        switch problem {
        case .invalid, .missing, .conflict, .noKnownSelector: 107
        case .unsupported: 108
        case .badChannelName: 112
        case .condition(let error): error.code
        }
    }
}
