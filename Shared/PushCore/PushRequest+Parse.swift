package import JSON

extension PushRequest {
    /// The most elements of any list of a request.
    package static let maximumListCount = 10_000

    /// The most bytes of a source or id in the request itself. In an envelope they may be longer.
    package static let maximumSourceBytes = 256

    /// How far in the future a scheduled push may be, in milliseconds: a later time is a mistake.
    private static let maximumLead: Int64 = 3653 * 86_400_000

    /// Fields of the contract that are not supported yet. They are refused, as ignoring them would
    /// be worse.
    private static let unsupportedFields = ["req_id"]

    /// The highest pace. A higher number would not limit anything.
    private static let maximumPace = 10_000_000
    /// A day, in seconds.
    private static let maximumSpread = 86_400.0
    /// The lowest value; LeanCloud raises smaller ones to this.
    private static let minimumFlowControl = 1000

    /// The known names by length: a name is compared only with the few names of its length.
    private static let knownFields = byLength([
        "id", "source", "app", "channels", "where", "cql", "identities", "installations", "tags",
        "tokens", "audience_topic", "data", "native", "push_time", "expiration_time",
        "expiration_interval", "topic", "apns_team_id", "prod", "collapse_id", "priority", "pace",
        "spread", "flow_control", "dry_run", "notification_id", "req_id", "_notificationChannel",
        "platforms", "template", "sdk",
    ])

    private static func byLength(_ names: [String]) -> [[String]] {
        let longest = names.map(\.utf8.count).max() ?? 0
        return (0...longest).map { length in names.filter { $0.utf8.count == length } }
    }

    private static func isKnown(_ name: String) -> Bool {
        guard name.utf8.count < knownFields.count else { return false }
        for known in knownFields[name.utf8.count] where known.isSame(as: name) { return true }
        return false
    }

    private static let selectorFields = [
        "channels", "where", "cql", "identities", "installations", "tags", "platforms", "template",
        "tokens", "audience_topic",
    ]

    /// The fields that exclude the other selectors.
    private static let exclusiveFields = ["tokens", "audience_topic"]

    /// Reads a request. Kafka and HTTP share this, so a request means the same on both.
    ///
    /// If a known field is `null`, it counts as absent, except for the selectors. If a known field
    /// has an invalid value, the error names the field. `now` is compared with `push_time`.
    /// `isStored` says that the request was validated when it was accepted, perhaps by an older
    /// version.
    package static func parse(
        _ object: JSONObject,
        now: Instant,
        isStored: Bool = false
    ) throws(PushRequestError) -> PushRequest {
        let fields = FieldReader(object)
        var unknown: [String] = []
        for (field, value) in object {
            // `jsonb` refuses a string with a NUL only when it is stored, and names no field.
            if !isStored, field.holds(byte: 0) || value.holdsNUL {
                throw PushRequestError(
                    String(field.prefix(100)),
                    .invalid("must not hold a NUL character")
                )
            }
            if !isKnown(field) { unknown.append(field) }
        }
        for field in unsupportedFields where fields.has(field) {
            throw PushRequestError(field, .unsupported)
        }
        // A selector that is null must not count as absent: a push for one user must not go to
        // every phone.
        for field in selectorFields where fields.isNull(field) {
            throw PushRequestError(field, .invalid("must not be null"))
        }
        if !unknown.isEmpty, fields.has("audience_topic") {
            unknown.removeAll(where: AudienceTopic.configFields.contains)
        }
        try refuseConflicts(fields)
        if let first = unknown.first, !selectorFields.contains(where: fields.has) {
            throw PushRequestError(first, .noKnownSelector)
        }
        var request = PushRequest(audience: try audience(fields))
        request.unknownFields = Array(unknown.prefix(100)).map { String($0.prefix(100)) }
        request.id = try fields.identifier("id")
        request.source = try fields.identifier("source")
        request.app = try fields.string("app")
        if let app = request.app, !AppID.isWellFormed(app) {
            throw PushRequestError("app", .invalid("is not an app id"))
        }
        if let data = try fields.object("data").map(PushData.checked) {
            request.data = data
            request.templateFields = PushTemplate.fields(of: data)
        }
        guard request.templateFields.count <= PushTemplate.maximumFields else {
            throw PushRequestError(
                "data",
                .invalid("must not name more than \(PushTemplate.maximumFields) fields")
            )
        }
        request.native = try nativePayloads(fields)
        request.deviceTemplate = try deviceTemplate(fields)
        if let template = request.deviceTemplate { request.templateFields = [template.valueField] }
        guard request.data != nil || !request.native.isEmpty || request.deviceTemplate != nil else {
            throw PushRequestError("data", .missing("an object, or native, says what to send"))
        }
        request.isDryRun = try fields.boolean("dry_run") ?? false
        try readTimes(fields, now: now, into: &request)
        try readOptions(fields, into: &request)
        request.pace = try pace(fields)
        request.spreadMilliseconds = try spread(fields)
        return request
    }

    private static func refuseConflicts(_ fields: FieldReader) throws(PushRequestError) {
        if fields.has("expiration_time"), fields.has("expiration_interval") {
            throw PushRequestError("expiration_time", .conflict(with: "expiration_interval"))
        }
        if fields.has("pace"), fields.has("flow_control") {
            throw PushRequestError("pace", .conflict(with: "flow_control"))
        }
        if fields.has("where"), fields.has("cql") {
            throw PushRequestError("where", .conflict(with: "cql"))
        }
        for other in ["pace", "flow_control"] where fields.has("spread") && fields.has(other) {
            throw PushRequestError("spread", .conflict(with: other))
        }
        for field in exclusiveFields where fields.has(field) {
            for other in selectorFields where other != field && fields.has(other) {
                throw PushRequestError(field, .conflict(with: other))
            }
        }
    }

    /// Combines `where` or `cql`, `tags`, `platforms` and `template` into one condition; `nil` if there is none.
    private static func condition(_ fields: FieldReader) throws(PushRequestError) -> Where? {
        var parts: [Where] = []
        if let part = try whereCondition(fields) { parts.append(part) }
        if let text = try fields.string("cql") {
            let condition = try cqlCondition(text)
            if condition != .everything { parts.append(condition) }
        }
        if let part = try hubCondition(fields) { parts.append(part) }
        return parts.count > 1 ? .all(parts) : parts.first
    }

    /// Returns the condition of `where`; `nil` if it is absent, or `{}`, which SDKs send for "no
    /// condition".
    private static func whereCondition(_ fields: FieldReader) throws(PushRequestError) -> Where? {
        guard let value = fields["where"] else { return nil }
        guard value.object != nil || value.array != nil else {
            throw PushRequestError(
                "where",
                .invalid("must be an object, or an array of objects, \(value.not)")
            )
        }
        do throws(WhereError) {
            let condition = try Where.parse(value)
            try condition.checkClasses()
            return condition == .everything ? nil : condition
        } catch {
            throw PushRequestError("where", .condition(error))
        }
    }

    private static func audience(_ fields: FieldReader) throws(PushRequestError) -> Audience {
        if let tokens = fields["tokens"] { return .tokens(try directTokens(tokens)) }
        if let topic = try AudienceTopic(fields) { return .topic(topic) }
        let channels = try fields.strings("channels", orOne: true)
        for (index, channel) in (channels ?? []).enumerated()
        where !ChannelName.isStorable(channel) {
            throw PushRequestError("channels[\(index)]", .badChannelName)
        }
        var selectors = Selectors(
            channels: channels,
            identities: try fields.strings("identities", orOne: false),
            installations: try fields.strings("installations", orOne: false),
            condition: try condition(fields)
        )
        selectors.isOfTemplate = fields.has("template")
        return .installations(selectors)
    }

    /// Parses a CQL condition. A push goes to all devices that the condition selects. So clauses
    /// that would reduce the selection, such as a limit, are refused and not ignored.
    private static func cqlCondition(_ text: String) throws(PushRequestError) -> Where {
        let query: CQLQuery
        do throws(CQLError) {
            query = try CQLQuery.parse(text)
        } catch {
            throw PushRequestError(
                "cql",
                .condition(WhereError(code: error.code, error.description))
            )
        }
        guard query.className == "_Installation" else {
            throw PushRequestError("cql", .invalid("must select from _Installation"))
        }
        let isOfAll = query.limit == nil && query.skip == 0 && query.order.isEmpty
        guard isOfAll, !query.isCount else {
            throw PushRequestError(
                "cql",
                .invalid("must select all that it means: no count, no order by and no limit")
            )
        }
        return query.condition
    }

    /// Combines `tags`, `platforms` and `template` into a condition; `nil` if all are absent.
    private static func hubCondition(_ fields: FieldReader) throws(PushRequestError) -> Where? {
        var parts: [Where] = []
        var tags: TagExpression?
        if let text = try fields.string("tags") {
            do throws(TagExpressionError) {
                tags = try TagExpression.parse(text)
            } catch {
                throw PushRequestError("tags", .invalid(error.description))
            }
        }
        if let template = try deviceTemplate(fields) {
            parts.append(template.condition(tags))
        } else if let tags {
            parts.append(tags.condition())
        }
        if let names = try fields.strings("platforms", orOne: false) {
            for (index, name) in names.enumerated() where Platform(rawValue: name) == nil {
                throw PushRequestError(
                    "platforms[\(index)]",
                    .invalid("must be apns, fcm, wns or mpns, not \(JSONValue.string(name).shown)")
                )
            }
            parts.append(.field(.provider, .among(names.map(WhereValue.string))))
        }
        return parts.isEmpty ? nil : parts.count == 1 ? parts[0] : .all(parts)
    }

    /// Parses `template`: `{"name", "properties"}`. It defines the content, so it excludes `data` and `native`.
    private static func deviceTemplate(
        _ fields: FieldReader
    ) throws(PushRequestError) -> HubTemplate.Send? {
        guard let object = try fields.object("template") else { return nil }
        for other in ["data", "native"] where fields.has(other) {
            throw PushRequestError("template", .conflict(with: other))
        }
        let reader = FieldReader(object, path: "template.")
        guard let name = try reader.string("name"), HubTemplate.isName(name) else {
            throw PushRequestError("template.name", .missing("letters, digits and _ @ # . : -"))
        }
        try reader.stringMap("properties")
        var properties: ExactStringMap<String> = [:]
        for (key, value) in try reader.object("properties") ?? [:] {
            properties[key.lowercased()] = value.string
        }
        return HubTemplate.Send(name: name, properties: properties)
    }

    private static func directTokens(
        _ value: JSONValue
    ) throws(PushRequestError) -> [DirectToken] {
        guard let entries = value.array else {
            throw PushRequestError("tokens", .invalid("must be an array of objects, \(value.not)"))
        }
        guard entries.count <= maximumListCount else {
            throw PushRequestError(
                "tokens",
                .invalid("must hold at most \(maximumListCount) entries")
            )
        }
        var tokens: [DirectToken] = []
        var seen: [String: DirectToken] = [:]
        for (index, entry) in entries.enumerated() {
            let token = try directToken(entry, at: "tokens[\(index)]")
            // A token that is listed twice is one device, with one row in the ledger.
            if let known = seen[token.token] {
                guard known == token else {
                    throw PushRequestError(
                        "tokens[\(index)]",
                        .invalid("is there already, for another platform or environment")
                    )
                }
                continue
            }
            seen[token.token] = token
            tokens.append(token)
        }
        return tokens
    }

    private static func directToken(
        _ entry: JSONValue,
        at path: String
    ) throws(PushRequestError) -> DirectToken {
        guard let object = entry.object else {
            throw PushRequestError(path, .invalid("must be an object, \(entry.not)"))
        }
        let fields = FieldReader(object, path: path + ".")
        for key in object.keys where !["platform", "token", "environment"].contains(key) {
            throw PushRequestError("\(path).\(String(key.prefix(100)))", .invalid("is unknown"))
        }
        guard let platform: Platform = try fields.choice("platform", "apns, fcm, wns or mpns")
        else {
            throw PushRequestError("\(path).platform", .missing("apns, fcm, wns or mpns"))
        }
        guard let token = try fields.string("token") else {
            throw PushRequestError("\(path).token", .missing("a string"))
        }
        if let problem = DeviceToken.problem(token, for: platform) {
            throw PushRequestError("\(path).token", .invalid("cannot be used: \(problem)"))
        }
        var environment = PushEnvironment.none
        if let name = try fields.string("environment") {
            guard platform == .apns, let value = PushEnvironment(rawValue: name), value != .none
            else {
                throw PushRequestError(
                    "\(path).environment",
                    .invalid(
                        "must be production or sandbox, and is APNs' alone, not "
                            + JSONValue.string(name).shown
                    )
                )
            }
            environment = value
        }
        return DirectToken(
            platform: platform,
            token: DeviceToken.canonical(token, for: platform),
            environment: environment
        )
    }

    private static func nativePayloads(
        _ fields: FieldReader
    ) throws(PushRequestError) -> NativePayloads {
        guard let object = try fields.object("native") else { return NativePayloads() }
        let native = FieldReader(object, path: "native.")
        for key in object.keys where !["apns", "fcm", "wns", "mpns"].contains(key) {
            throw PushRequestError(
                "native.\(String(key.prefix(100)))",
                .invalid("must be apns, fcm, wns or mpns")
            )
        }
        let payloads = NativePayloads(
            apns: try native.object("apns"),
            fcm: try native.object("fcm"),
            wns: try native.object("wns"),
            mpns: try native.object("mpns")
        )
        if let apns = payloads.apns {
            let reader = FieldReader(apns, path: "native.apns.")
            try reader.stringMap("headers")
            guard try reader.object("payload") != nil else {
                throw PushRequestError("native.apns.payload", .missing("an object"))
            }
        }
        if let fcm = payloads.fcm {
            guard try FieldReader(fcm, path: "native.fcm.").object("message") != nil else {
                throw PushRequestError("native.fcm.message", .missing("an object"))
            }
        }
        if let wns = payloads.wns {
            let reader = FieldReader(wns, path: "native.wns.")
            try reader.stringMap("headers")
            let types = ["wns/toast", "wns/tile", "wns/badge", "wns/raw"]
            guard let type = try reader.string("type"), types.contains(type) else {
                throw PushRequestError(
                    "native.wns.type",
                    .invalid("must be one of \(types.joined(separator: ", "))")
                )
            }
            guard try reader.string("body") != nil else {
                throw PushRequestError("native.wns.body", .missing("a string"))
            }
        }
        if let mpns = payloads.mpns {
            let reader = FieldReader(mpns, path: "native.mpns.")
            try reader.stringMap("headers")
            guard try reader.string("body") != nil else {
                throw PushRequestError("native.mpns.body", .missing("a string"))
            }
        }
        return payloads
    }

    private static func readTimes(
        _ fields: FieldReader,
        now: Instant,
        into request: inout PushRequest
    ) throws(PushRequestError) {
        request.pushTime = try fields.pushTime("push_time")
        if let time = request.pushTime, time.earliest > now.adding(milliseconds: maximumLead) {
            throw PushRequestError("push_time", .invalid("must lie within the next ten years"))
        }
        if let time = try fields.time("expiration_time") {
            if let start = request.pushTime?.earliest, time <= start {
                throw PushRequestError("expiration_time", .invalid("must be after push_time"))
            }
            request.expiration = .at(time)
        }
        if let interval = fields["expiration_interval"] {
            // LeanCloud's own examples also send the number as a string. Time intervals of Apple's
            // clients have fractions: they are rounded up, so that nothing expires early.
            guard let seconds = interval.realNumber, (0...3_153_600_000).contains(seconds) else {
                throw PushRequestError(
                    "expiration_interval",
                    .invalid("must be a number of seconds, 0 or more, not \(interval.shown)")
                )
            }
            request.expiration = .afterSeconds(Int(seconds.rounded(.up)))
        }
    }

    private static func pace(_ fields: FieldReader) throws(PushRequestError) -> Int? {
        if let pace = fields["pace"] {
            guard let devices = pace.wholeNumber, devices >= 1 else {
                throw PushRequestError(
                    "pace",
                    .invalid(
                        "must be a whole number of devices a second, 1 or more, not \(pace.shown)"
                    )
                )
            }
            return min(devices, maximumPace)
        }
        guard let control = fields["flow_control"] else { return nil }
        guard let devices = control.wholeNumber, devices >= 0 else {
            throw PushRequestError(
                "flow_control",
                .invalid(
                    "must be a whole number of devices a second, 0 or more, not \(control.shown)"
                )
            )
        }
        return min(max(devices, minimumFlowControl), maximumPace)
    }

    /// Returns the spread in milliseconds; `nil` for a push without a spread.
    private static func spread(_ fields: FieldReader) throws(PushRequestError) -> Int? {
        guard let value = fields["spread"] else { return nil }
        guard let seconds = value.realNumber, (0...maximumSpread).contains(seconds) else {
            throw PushRequestError(
                "spread",
                .invalid(
                    "must be a number of seconds, 0 to \(Int(maximumSpread)), not \(value.shown)"
                )
            )
        }
        let milliseconds = Int((seconds * 1000).rounded())
        return milliseconds > 0 ? milliseconds : nil
    }

    private static func readOptions(
        _ fields: FieldReader,
        into request: inout PushRequest
    ) throws(PushRequestError) {
        request.apnsTopic = try fields.string("topic", bytes: 1...256)
        request.apnsTeamID = try fields.string("apns_team_id", bytes: 1...64)
        request.notificationLabel = try fields.identifier("notification_id", bytes: 1...16)
        request.androidChannel = try fields.string("_notificationChannel", bytes: 1...256)
        // This is APNs' limit, the lowest of all providers.
        request.collapseID = try fields.string("collapse_id", bytes: 1...64)
        request.priority = try fields.choice("priority", "high or normal")
        request.sdk = try fields.choice("sdk", "parse")
        switch try fields.string("prod") {
        case nil, "prod": request.environment = .production
        case "dev": request.environment = .sandbox
        case let name?:
            throw PushRequestError(
                "prod",
                .invalid("must be dev or prod, not \(JSONValue.string(name).shown)")
            )
        }
    }
}
