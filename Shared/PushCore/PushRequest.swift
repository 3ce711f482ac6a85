package import JSON

/// One push, as requested by `push.requests` or `POST /1.1/push`.
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
    /// `template`: each device stores the form of its message, and the push contains only the
    /// values.
    package var deviceTemplate: HubTemplate.Send?
    /// The time of sending; `nil` for at once. A past time also means at once.
    package var pushTime: PushTime?
    package var expiration: Expiration?
    /// LeanCloud's `topic`: the APNs topic (bundle id).
    package var apnsTopic: String?
    package var apnsTeamID: String?
    /// `prod`: the APNs environment of installations that do not name their own.
    package var environment: PushEnvironment
    package var collapseID: String?
    package var priority: Priority?
    /// `notification_id`: the sender's own label for the push's record.
    package var notificationLabel: String?
    /// `_notificationChannel`: Android's notification channel.
    package var androidChannel: String?
    /// `pace`, or LeanCloud's `flow_control`: the maximum number of devices per second. It does not
    /// limit retries.
    package var pace: Int?
    /// `spread`: the time over which the audience is sent to, whatever its size. It does not delay
    /// retries or the message to a topic.
    package var spreadMilliseconds: Int?
    /// Whether it is a dry run: all steps except sending are done.
    package var isDryRun: Bool
    /// `sdk`: the client library of the Android apps, if it needs its own form of FCM's messages.
    package var sdk: SDK?
    /// The fields of the request that are not in the contract. Stored in the push's record.
    package var unknownFields: [String]
    /// Whether devices get the push's id, as `pushIDKey`. The app's setting `receipts` decides, not
    /// the request.
    package var includesPushID = false
    /// The first channels of its audience, for the channel callbacks of devices. The dispatcher
    /// sets them, as it drops the audience.
    package var audienceChannels: [String] = []

    package static let maximumAudienceChannels = 20

    /// The custom key for a push's id. It replaces a key of the sender with the same name.
    package static let pushIDKey = "pushId"

    package enum Audience: Sendable, Equatable {
        case installations(Selectors)
        case tokens([DirectToken])
        case topic(AudienceTopic)
    }

    /// Each present selector narrows the others. Without any selector, every valid installation of
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
        /// The config version of an audience topic. Devices that have fetched this version or a
        /// later one are left out.
        package var configBelow: Int?
        /// Whether the push fills templates. It then also reaches installations that receive only
        /// template sends.
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
        /// The environment; `.none` if the entry does not name one: then the push's `prod` decides.
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

    /// Returns when the push expires; `nil` if it never does. An interval without a `push_time`
    /// counts from `acceptedAt`, when the request arrived. With a device-local `push_time` each
    /// device has its own end, and this is the last one. Also returns `nil` for a push that is sent
    /// now or never: it does not expire before it is sent.
    package func expiresAt(acceptedAt: Instant) -> Instant? {
        switch expiration {
        case .at(let time): time
        case .afterSeconds(0): nil
        case .afterSeconds(let seconds):
            (pushTime?.latest ?? acceptedAt).adding(milliseconds: Int64(seconds) * 1000)
        case nil: nil
        }
    }

    /// Whether each provider should try once and store nothing: the `expiration_interval` is 0. The
    /// push is sent once, without a retry even if the provider is busy.
    package var isNowOrNever: Bool { expiration == .afterSeconds(0) }

    /// Whether it goes to devices that it names one by one.
    package var isDirect: Bool {
        switch audience {
        case .tokens: true
        case .installations(let selectors): selectors.isDirect
        case .topic: false
        }
    }

    /// Whether the push comes from one of Carillon's own services and is the same on every repeat.
    /// Devices do not show a repeat of such a push, so a request without an answer may be sent once
    /// more.
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
        /// The field excludes another field of the request.
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
